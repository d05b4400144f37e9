-- The relay's memory in SQLite. Safe to run again.
create table if not exists accounts (
    did text primary key,
    host text not null,
    rev text,
    data blob,
    head blob,
    active integer not null,
    status text,
    local_status text
) without rowid;
create index if not exists accounts_taken_down on accounts (did) where local_status is not null;
create index if not exists accounts_by_host on accounts (host, did);
create table if not exists hosts (
    hostname text primary key,
    status text not null,
    cursor integer not null,
    account_count integer not null,
    account_limit integer,
    trusted integer not null,
    failures integer not null,
    last_seen integer not null,
    added_at integer not null
) without rowid;
create table if not exists domain_bans (domain text primary key) without rowid;
