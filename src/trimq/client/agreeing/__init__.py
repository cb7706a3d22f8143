"""Agreement of several parties on one change: two-phase commit, and try-confirm-cancel (TCC)."""

from trimq.client.agreeing.branches import LateTry, NotTried, TccBranch
from trimq.client.agreeing.journal import Decision, Journal
from trimq.client.agreeing.postgres import PostgresParticipant
from trimq.client.agreeing.tcc import Branch, Tcc
from trimq.client.agreeing.two_phase import Participant, TwoPhase
from trimq.client.databases import Cursor, Database

__all__ = [
    "Branch",
    "Cursor",
    "Database",
    "Decision",
    "Journal",
    "LateTry",
    "NotTried",
    "Participant",
    "PostgresParticipant",
    "Tcc",
    "TccBranch",
    "TwoPhase",
]
