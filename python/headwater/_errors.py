"""What headwater raises."""

__all__ = ["HeadwaterError"]


class HeadwaterError(RuntimeError):
    """Something headwater cannot do as asked: what is wrong and where, and what to do about it.

    `what` and `remedy` are the two halves of its message.

    >>> import headwater as hw
    >>> try:
    ...     hw.Secret("env:NONE_SUCH").reveal()
    ... except hw.HeadwaterError as error:
    ...     print(error.what)
    the secret 'env:NONE_SUCH' is not there: the environment has no variable 'NONE_SUCH'
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. To do: {remedy}.")
        self.what = what
        self.remedy = remedy
