"""What Muri's authors printed for SRTF and SRSF (simulator/draw_fig9-10.py), to compare with, in seconds."""

from msgspec import Struct


class Printed(Struct, frozen=True):
    """The printed digits of one trace under one order."""

    average_s: str
    p99_s: str
    makespan_s: str

    def differences(self, average_s: float, p99_s: float, makespan_s: float) -> tuple[str, ...]:
        """Which of the three differ in a printed digit."""
        pairs = (
            ("average", self.average_s, average_s),
            ("p99", self.p99_s, p99_s),
            ("makespan", self.makespan_s, makespan_s),
        )
        return tuple(name for name, text, value in pairs if not _same(text, value))


PRINTED: dict[tuple[str, str], Printed] = {
    ("trace1", "srtf"): Printed("1370603.198", "16647148.09074", "26045465.532945"),
    ("trace1", "srsf"): Printed("980140.5699", "15529913.227905", "26065759.044845"),
    ("trace2", "srtf"): Printed("2665607.375", "33128484.196403", "48847005.197635"),
    ("trace2", "srsf"): Printed("2213949.687", "31241250.835485", "49026465.31107"),
    ("trace3", "srtf"): Printed("193081.796", "4538890.607", "8174135.28"),
    ("trace3", "srsf"): Printed("185021.8802", "4189699.177", "8174135.28"),
    ("trace4", "srtf"): Printed("581982.9002", "7768533.005", "14787990.59235"),
    ("trace4", "srsf"): Printed("487167.1688", "7372568.184", "14887908.86639"),
    ("trace1_pr", "srtf"): Printed("2303543.816", "19871388.29092", "24513543.937825"),
    ("trace1_pr", "srsf"): Printed("1801859.995", "18267307.81118", "24272529.59311"),
    ("trace2_pr", "srtf"): Printed("4079154.454", "36640840.003736", "48697594.999386"),
    ("trace2_pr", "srsf"): Printed("3384600.437", "34656644.081924", "47972347.554251"),
    ("trace3_pr", "srtf"): Printed("844394.78", "6363099.549", "7261795.828"),
    ("trace3_pr", "srsf"): Printed("798057.6829", "6228160.594", "6907790.403"),
    ("trace4_pr", "srtf"): Printed("1430856.446", "9443500.203", "14272665.007687"),
    ("trace4_pr", "srsf"): Printed("1218501.968", "9227908.326", "14426755.371188"),
}
TRACES = ("trace1", "trace2", "trace3", "trace4", "trace1_pr", "trace2_pr", "trace3_pr", "trace4_pr")


def _same(text: str, value: float) -> bool:
    """Equal when rounded to as many digits as were printed."""
    digits = len(text.partition(".")[2])
    return f"{value:.{digits}f}" == text
