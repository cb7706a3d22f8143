"""With an older PySpark, other sources work, and this one reports the version that it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

_OLD = """
import pyspark.sql.datasource as datasource
for name in ("DataSourceArrowWriter", "DataSourceStreamArrowWriter"):
    delattr(datasource, name)
import pyspark_trimq
from pyspark_trimq.mistakes import Mistake
source = pyspark_trimq.DefaultSource({{}})
try:
    source.{call}
except Mistake as mistake:
    print(mistake)
"""


@pytest.mark.parametrize("call", ["streamWriter(None, False)", "writer(None, False)"])
def test_a_missing_feature_is_reported_on_use(call: str) -> None:
    code = _OLD.format(call=call)
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.startswith("format('trimq') needs PySpark 4.3, found 4.")
    assert output.endswith(": pip install 'trimq[spark]'\n")
