"""A user's SQL reads the profile, and neither changes nor reads anything else."""

import pytest
from neuronscope.analysis.library import open_profile
from neuronscope.analysis.profile import QueryError
from neuronscope.store import Store

CHANGES = [
    "WITH x AS (COPY (SELECT 1) TO '{folder}/Execution.parquet') SELECT 1",
    "WITH x AS (COPY (SELECT 1) TO '{folder}/Evil.parquet' (RETURN_FILES)) SELECT * FROM x",
    "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '{folder}/Evil.parquet') SELECT 1",
    "SELECT * FROM query('WITH x AS (COPY (SELECT 1) TO ''{folder}/Evil.parquet'') SELECT 1')",
    "WITH x AS (INSERT INTO Throttle(timestamp) VALUES (1) RETURNING *) SELECT * FROM x",
    "WITH x AS (DELETE FROM Throttle RETURNING *) SELECT * FROM x",
    "WITH x AS (UPDATE Throttle SET timestamp = 1 RETURNING *) SELECT * FROM x",
    "COPY (SELECT 1) TO '{folder}/Evil.parquet'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/Evil.parquet'",
    "ATTACH '{folder}/evil.db'",
    "CREATE TABLE evil AS SELECT 1",
    "SET enable_external_access = true",
    "PRAGMA database_list",
    "INSTALL httpfs",
    "SELECT 1; SELECT 2",
]
READS = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_parquet('{folder}/../*/Execution.parquet')",
    "SELECT * FROM read_text('{folder}/../../../profiles.json')",
]
QUERIES = [
    "SELECT count(*) FROM Execution",
    "FROM operators() LIMIT 1",
    "WITH x AS (SELECT 1 AS one) SELECT * FROM x",
    "DESCRIBE Execution",
    "SUMMARIZE Step",
    "SHOW TABLES",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT count(*) FROM Slice",
    "SELECT name AS \"COPY_TO_FILE\", 'INSERT' AS kind FROM Name LIMIT 1",
    "VALUES (1)",
]


@pytest.fixture(scope="module")
def opened(golden, tmp_path_factory):
    """The golden session as the two classes that run SQL: with analyses, and as stored."""
    folder = tmp_path_factory.mktemp("library")
    profile = open_profile(golden.source, data_path=folder)
    return profile, Store(folder).list()[0]


def contents(profile):
    """Names and bytes of the profile's tables."""
    return {file.name: file.read_bytes() for file in sorted(profile.directory.iterdir()) if file.is_file()}


@pytest.mark.parametrize("query", CHANGES)
def test_nothing_can_be_changed(opened, query):
    before = contents(opened[0])
    for profile in opened:
        with pytest.raises(QueryError):
            profile.sql(query.format(folder=opened[0].directory), timeout_s=20)
        assert profile.sql("SELECT count(*) AS n FROM Throttle").to_pylist() == [{"n": 0}]
    assert contents(opened[0]) == before


@pytest.mark.parametrize("query", READS)
def test_nothing_else_can_be_read(opened, query):
    for profile in opened:
        with pytest.raises(QueryError):
            profile.sql(query.format(folder=opened[0].directory), timeout_s=20)


@pytest.mark.parametrize("query", QUERIES)
def test_queries_run(opened, query):
    for profile in opened:
        if "operators()" not in query or hasattr(profile, "operators"):  # the store has no macros
            assert profile.sql(query, timeout_s=20).num_columns


def test_a_query_of_the_store_takes_parameters(opened):
    assert opened[1].sql("SELECT $one AS one", {"one": 1}).to_pylist() == [{"one": 1}]
