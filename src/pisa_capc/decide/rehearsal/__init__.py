"""Rehearsals of a deployment on the source alone, from which the guard learns when a calibration may be trusted.

leave_one_out  the runs that leave one source environment out
guard          calibrations of captures resampled from labelled frames, and the thresholds learnt from them
"""

from pisa_capc.decide.rehearsal.guard import fit_with_guard, learn_guard

__all__ = ["fit_with_guard", "learn_guard"]
