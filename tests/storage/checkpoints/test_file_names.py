from __future__ import annotations

from pathlib import Path

import pytest
from storage.kafka_folders import FOLDERS

from trimq.storage.checkpoints.file_names import LEADER_EPOCHS, LOG, PARTITION_METADATA, SEGMENT_COMPANIONS
from trimq.storage.group_commit.segment import base_of


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_file_name_of_a_kafka_folder_is_recognised(folder: Path) -> None:
    for path in folder.iterdir():
        of_a_segment = path.suffix in (LOG, *SEGMENT_COMPANIONS) and base_of(path.name, path.suffix) is not None
        assert of_a_segment or path.name in (LEADER_EPOCHS, PARTITION_METADATA)
