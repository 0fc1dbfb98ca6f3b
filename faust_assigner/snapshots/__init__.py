"""Changelog snapshots: what the pipeline writes and a recovering worker reads; no Spark, no Faust.

    changelog records -> last value per key -> SST files + manifest (written last)
    manifest -> checks -> SST files -> ingested into an empty RocksDB

Layout: ``ROOT/<topic>/<partition>/<snapshot_id>/{*.sst, manifest.json}``. A folder without a manifest
is no snapshot: readers never see it, ``gc`` removes it after a while.

    manifest.py    the manifest: fields, (de)serialisation, when a snapshot must be refused
    storage.py     a local folder, or any URL fsspec knows (s3://, gs://, memory://)
    sst.py         sorted items -> SST files, and back; bit-identical for identical contents
    compaction.py  changelog records in offset order -> last value per key, in bounded memory
    trust.py       which snapshots may stand in for the changelog as it is today
    changelog.py   where a changelog begins and ends, and its records, through aiokafka
    topic_ids.py   which topic a name means today
    catalog.py     publish, find, fetch snapshots
    upkeep.py      verify and gc
"""
