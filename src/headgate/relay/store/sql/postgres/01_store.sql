-- The relay's memory in PostgreSQL, in a schema of its own. Safe to run again.
create table if not exists accounts (
    did text collate "C" primary key,
    host text not null,
    rev text,
    data bytea,
    head bytea,
    active integer not null,
    status text,
    local_status text
);
create index if not exists accounts_taken_down on accounts (did) where local_status is not null;
create index if not exists accounts_by_host on accounts (host, did);
create table if not exists hosts (
    hostname text collate "C" primary key,
    status text not null,
    cursor bigint not null,
    account_count bigint not null,
    account_limit bigint,
    trusted integer not null,
    failures integer not null,
    last_seen bigint not null,
    added_at bigint not null
);
create table if not exists domain_bans (domain text collate "C" primary key);
