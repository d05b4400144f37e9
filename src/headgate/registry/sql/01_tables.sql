-- Each schema once, whatever subjects have it. Its identity is the SHA-256 of what it says and refers to.
create table schemas (
    id int primary key check (id > 0),
    kind text not null check (kind in ('AVRO', 'JSON', 'PROTOBUF')),
    body text not null,
    identity bytea not null unique,
    created_at timestamptz not null default now()
);

-- A version that is deleted stays known to those who have its id, until it is deleted for good.
create table versions (
    subject text not null check (subject <> ''),
    version int not null check (version > 0),
    schema_id int not null references schemas (id),
    is_deleted boolean not null default false,
    created_at timestamptz not null default now(),
    primary key (subject, version)
);

create index versions_by_schema on versions (schema_id);

create table schema_references (
    schema_id int not null references schemas (id) on delete cascade,
    position int not null,
    name text not null,
    subject text not null,
    version int not null,
    primary key (schema_id, position),
    foreign key (subject, version) references versions (subject, version)
);

create index references_by_target on schema_references (subject, version);

-- What was set for a subject; the row without a name is for all others.
create table settings (
    subject text primary key,
    compatibility text,
    mode text
);

-- The greatest id that was given out, so that none is given twice when schemas are deleted for good.
create table counters (
    is_only boolean primary key default true check (is_only),
    last_id int not null
);

insert into counters (last_id) values (0);
