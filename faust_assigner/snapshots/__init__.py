"""Changelog snapshots: the pipeline writes them, recovering workers read them.

The package imports neither Spark nor Faust.

    changelog records -> last value per key -> SST files + manifest (written last)
    manifest -> checks -> SST files -> ingested into an empty RocksDB

Layout: ``ROOT/<topic>/<partition>/<snapshot_id>/{*.sst, manifest.json}``. A folder without a manifest
is not a snapshot: readers skip the folder, and ``gc`` removes it after a while.

    manifest.py       the manifest: fields, (de)serialisation, reasons to refuse a snapshot
    storage.py        a local folder, or any URL that fsspec supports (s3://, gs://, memory://)
    sst.py            sorted items -> SST files, and back; seal.py makes equal contents bit-identical
    layers.py         a previous snapshot + changes -> unchanged files and new files
    compaction.py     changelog records in offset order -> last value per key, in bounded memory
    arrow_batches.py  batches of these records: the last row per key; json_rows.py finds JSON rows
    changelog.py      a changelog's first and end offsets, and its records, through aiokafka
    topic_ids.py      the current topic behind a name
    catalog.py        publish, find, fetch snapshots
    trust.py          the snapshots that may replace the current changelog
    lease.py          protects the files of a running job from removal
    verification.py   the check of all snapshots
    retention.py      the removal of old snapshots
"""
