"""A listener with a page.

hub                  where a listener, what is remembered of it and who asks come together
memory, rows         what was heard lately, in bounded memory
keepsakes            what outlives the service: names, alarms
enrolling            models with devices that were enrolled on the page
views, downloads     a frame to look at, files to download
models, api          what is asked and answered
clients              events to connected clients
audit                who changed what
connections          how many there are, of whom, for how long
keys, limits, gate   who may ask, how much, from where
metrics              for Prometheus
app, server          all of it, beside a listener that never waits for it
"""
