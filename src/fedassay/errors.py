"""Every error that fedassay raises on purpose.

::

    FedassayError                   exit code
      UsageError                    2   an option or argument is wrong
        ParameterError              2   a named parameter has a wrong value
      DataError                     2   the rows cannot be used
      UnsupportedQuery              2   this trust model cannot answer this query, and why
      Refused                       3   somebody who may say no said no
        PolicyRefusal               3   a site's policy
        BudgetExceeded              3   a ledger's budget
        LedgerUnusable              3   a ledger was changed behind our back, or cannot be reached
      FederationError               4   the federation failed
        TooFewClients               4   fewer clients than the release needs
        ProtocolError               4   a message is malformed, replayed, or out of turn
          AnswerLost                4   a site has paid for an answer that it no longer has

Each message says what was wrong, what was given, what was expected, and how to fix it.
"""

from __future__ import annotations

from typing import ClassVar


class FedassayError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1


class UsageError(FedassayError):
    """An option or argument is wrong."""

    exit_code = 2


class ParameterError(UsageError):
    """A named parameter has a wrong value.

    In Python and in files it has its name, on the command line that of its option: each face says it in its own way.
    """

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter}: {problem}")
        self.parameter = parameter
        self.problem = problem


class DataError(FedassayError):
    """The rows cannot be used as they are."""

    exit_code = 2


class UnsupportedQuery(FedassayError):
    """This trust model cannot answer this query; raised before any row is read."""

    exit_code = 2


class Refused(FedassayError):
    """Somebody who may say no said no."""

    exit_code = 3


class PolicyRefusal(Refused):
    """A site's policy does not allow the request."""


class BudgetExceeded(Refused):
    """A charge would overspend a privacy budget."""


class LedgerUnusable(Refused):
    """A ledger was changed behind our back, or cannot be reached: nothing may be spent from it."""


class FederationError(FedassayError):
    """The federation could not finish the release."""

    exit_code = 4


class TooFewClients(FederationError):
    """Fewer clients answered than the release needs."""


class ProtocolError(FederationError):
    """A message is malformed, replayed, or out of turn."""


class AnswerLost(ProtocolError):
    """A site has paid for an answer that it no longer has; another one would be a second draw of noise."""
