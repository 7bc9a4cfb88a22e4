"""Simulated frames: waveform → device hardware → array channel → receiver, one pure function per physical step.

waveforms     what is sent           hardware   the flaws of one transmitter
channel       rays to the array      receiver   residual frequency, noise, levels
cfo           frequency over time    scene      who transmits where (scenes/*.yaml)
capture       the frames of one capture file    generate   a whole dataset, in parallel
"""
