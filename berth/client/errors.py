"""Errors of the client, classified by what a program does next."""


class ClientError(Exception):
    """Base class of the errors of the client."""


class RequestError(ClientError):
    """The service did not carry out the request. The text is that of the service.

    Attributes:
        code: Kind of the error, such as ``not-found`` or ``uid-in-use``; the guide lists them, more may follow.
        retry_after_s: When the same request may be carried out; 0 if nobody knows.
    """

    def __init__(self, text: str, code: str, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.code = code
        self.retry_after_s = retry_after_s


class UnavailableError(ClientError):
    """No answer in time: ask again. A request that changes something may have taken effect.

    Attributes:
        uid: Uid of the job that was to be submitted, for the same request with the same uid; empty for other requests.
        retry_after_s: As of :class:`RequestError`.
    """

    def __init__(self, text: str, uid: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.uid = uid
        self.retry_after_s = retry_after_s


class ConnectionLostError(ClientError):
    """The connection is closed, or NATS refuses it: correct the cause, and connect again."""


class EventsLostError(ClientError):
    """Events cannot be continued: some were removed before they were read, or more was lost than ids are remembered.

    Read from the beginning, and ignore ids that were seen.
    """


class WaitTimeoutError(ClientError, TimeoutError):
    """The job did not get there in time; it is not affected by that."""
