"""The emulator: real `roamcast node` processes in real time, one network namespace each, an emulated radio.

Read `namespaces` (a network and a TAP device per node, without root where the kernel allows), `ether`
with `real_time` (the process that moves frames and plays the contact plan; the radio models are the
simulator's own), `applications` (the workload through the public client), `conductor` and `stage` (who starts
whom, with which files, what the parts write, and how all of it ends), `collect` (their journals as one
trace), and `emulation`, which the lab calls.

Who is whose parent, and so ends with it: lab → conductor → nodes and ether.

Nothing is imported here: the conductor must be able to load `namespaces` and nothing else (`stage`).
"""
