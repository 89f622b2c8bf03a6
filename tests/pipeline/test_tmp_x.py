import sys, time, warnings
from pathlib import Path
import pytest
from tests.pipeline import workloads as w
from seamark.testing.crashes import crash_at, SimulatedCrash

@pytest.mark.parametrize("kind", w.KINDS)
def test_x(spark, tmp_path, kind):
    f = w.write_input(tmp_path/"in")
    for pr in w.providers_for(kind):
        t=time.time()
        r = w.run(spark, kind, pr, f, tmp_path/pr)
        s = w.shown(tmp_path/pr)
        print(kind, pr, r.epoch, round(time.time()-t,2), {k:(sum(c.values()),max(c.values())) for k,c in s.items()})
    print(r.percentiles()["total"])
