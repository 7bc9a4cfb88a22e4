"""Reports: one page that opens from disk without a network, about trained runs, a dataset or a protocol."""

from pisa_capc.evidence.reports.card import model_card
from pisa_capc.evidence.reports.page import Page
from pisa_capc.evidence.reports.protocol import report_of_protocol
from pisa_capc.evidence.reports.run import report_of_dataset, report_of_runs

__all__ = ["Page", "model_card", "report_of_dataset", "report_of_protocol", "report_of_runs"]
