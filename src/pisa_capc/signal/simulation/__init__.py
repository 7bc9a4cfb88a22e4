"""Simulated frames: waveform → device hardware → array channel → receiver, one pure function per physical step.

hardware       the flaws of one transmitter, fixed wherever it goes
sender         a waveform through the hardware, frame by frame, with timing errors
channel        rays to the array: delays, directions, Doppler
receiver       carrier frequency offset over places and time, noise, levels
scene          who transmits where; every value stands in scenes/*.yaml
capture        the frames of one capture
generate       a whole dataset, in parallel and resumable
networks       what devices say to each other: frames with addresses
traffic        who sends when: random times, spoofed addresses, collisions
stream         what the antennas hear without a break
recording      a continuous recording, in parallel; truth: its annotations
numerics       between the samples; unit phasors and Gaussian noise
"""
