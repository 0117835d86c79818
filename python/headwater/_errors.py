"""What headwater raises."""

__all__ = ["HeadwaterError"]


class HeadwaterError(RuntimeError):
    """Something headwater cannot do as asked: what is wrong and where, and what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. To do: {remedy}.")
        self.what = what
        self.remedy = remedy
