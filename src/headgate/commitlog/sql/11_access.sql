-- Who may do what with the log: ACLs as Kafka's tools write them, and topics shared with roles of PostgreSQL.

-- Raised by every change of kafka.acls, so that gateways see at a glance whether what they know still holds.
create table kafka.access (
  only_row boolean primary key default true check (only_row),
  version bigint not null default 0
);
insert into kafka.access default values;

-- One row for each ACL. They may be changed with SQL, too: gateways learn of it in the same way.
create table kafka.acls (
  resource_type text not null check (resource_type in ('TOPIC', 'GROUP', 'CLUSTER', 'TRANSACTIONAL_ID')),
  pattern_type text not null check (pattern_type in ('LITERAL', 'PREFIXED')),
  resource_name text collate "C" not null check (octet_length(resource_name) between 1 and 1000),
  principal text collate "C" not null check (principal ~ '^[^:]+:.' and octet_length(principal) <= 500),
  host text collate "C" not null check (octet_length(host) between 1 and 100),
  operation text not null check (operation in ('ALL', 'READ', 'WRITE', 'CREATE', 'DELETE', 'ALTER', 'DESCRIBE',
    'CLUSTER_ACTION', 'DESCRIBE_CONFIGS', 'ALTER_CONFIGS', 'IDEMPOTENT_WRITE')),
  permission text not null check (permission in ('ALLOW', 'DENY')),
  made_at timestamptz not null default now(),
  made_by text not null default session_user,
  primary key (resource_type, pattern_type, resource_name, principal, host, operation, permission),
  check (resource_type <> 'CLUSTER' or resource_name = 'kafka-cluster')
);

create function kafka.note_access() returns trigger language plpgsql as $$
begin
  update kafka.access set version = version + 1;
  perform pg_catalog.pg_notify('kafka_access', '');
  return null;
end $$;
create trigger note after insert or update or delete or truncate on kafka.acls
  for each statement execute function kafka.note_access();

-- A topic as a view of its own, in the schema kafka_topics: what is granted on it counts for that topic alone.
--
--   select kafka.share_topic('orders');
--   grant usage on schema kafka, kafka_topics to alice;
--   grant select on kafka_topics.orders to alice;
--   grant insert on kafka_topics.orders to alice;   -- insert into kafka_topics.orders (key, value) values ('k', 'v')
--
-- The view belongs to whom the schema kafka belongs to, and is a barrier: no condition sees rows of other topics. The
-- rights stay with the name when the topic is deleted and made again, as Kafka's do.

-- Writes to the topic that a view of kafka_topics is about, with the rights of the schema's owner. It must not be
-- possible to have it called for another table, so nobody else may make triggers of it, and it looks who calls.
create function kafka.write_shared() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (
    select from pg_class as c join pg_class as log on log.oid = 'kafka.topics'::regclass
    where c.oid = tg_relid and c.relkind = 'v' and c.relowner = log.relowner
      and c.relnamespace = to_regnamespace('kafka_topics'))
  then
    raise exception '% is not a shared topic', tg_relid::regclass using errcode = 'insufficient_privilege';
  end if;
  if new."offset" is not null or new.global_offset is not null or new."timestamp" is not null then
    raise exception 'offset, global_offset and timestamp are given by the log' using errcode = 'generated_always';
  end if;
  perform kafka.produce(tg_table_name::text, new.key, new.value, coalesce(new.headers, '[]'), new.partition);
  return new;
end $$;
revoke execute on function kafka.write_shared() from public;

create function kafka.share_topic(topic text) returns regclass language plpgsql
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  owner name := (select pg_get_userbyid(c.relowner) from pg_class as c where c.oid = 'kafka.topics'::regclass);
  view_name text := format('kafka_topics.%I', topic);
begin
  if not exists (select from kafka.topics as t where t.name = topic) then
    raise exception 'there is no topic %', topic using errcode = 'undefined_object',
      hint = 'Create it first, with any Kafka client.';
  end if;
  if octet_length(topic) > 63 then
    raise exception 'the name of the topic % is too long for a view', topic using errcode = 'name_too_long';
  end if;
  if to_regnamespace('kafka_topics') is null then
    execute format('create schema kafka_topics authorization %I', owner);
  end if;
  if to_regclass(view_name) is null then
    execute format($view$
      create view %s with (security_barrier) as
      select m.partition, m."offset", m.global_offset, m.key, m.value, m.headers, m."timestamp"
      from kafka.messages as m where m.topic = %L $view$, view_name, topic);
    execute format('create trigger write instead of insert on %s for each row execute function kafka.write_shared()',
      view_name);
    execute format('alter view %s owner to %I', view_name, owner);
  end if;
  return view_name::regclass;
end $$;

-- What a role may do, for gateways that ask PostgreSQL instead of ACLs. No row: there is no such role.
--
--   all    reads and writes: member of the schema's owner, who may do everything
--   some   writes: some topic
--   topic  one row for each topic that was asked for
--   name   one row for each name of a group or of a transactional id: it belongs to the role before its first dot
create function kafka.rights_of(of_role text, topics text[], names text[])
returns table (kind text, name text, may_read boolean, may_write boolean) language sql stable rows 10 as $$
  with owner as materialized (
    select c.relowner as oid from pg_catalog.pg_class as c where c.oid = 'kafka.topics'::regclass
  ), who as materialized (
    select r.oid, pg_catalog.pg_has_role(r.oid, owner.oid, 'usage') as is_owner,
      pg_catalog.has_table_privilege(r.oid, 'kafka.messages'::regclass, 'select') as reads_all,
      pg_catalog.has_column_privilege(r.oid, 'kafka.inbox'::regclass, 'value', 'insert') as writes_all
    from pg_catalog.pg_roles as r cross join owner where r.rolname = of_role
  ), shared as (
    select c.oid, c.relname from pg_catalog.pg_class as c cross join owner
    where c.relnamespace = pg_catalog.to_regnamespace('kafka_topics') and c.relkind = 'v' and c.relowner = owner.oid
  )
  select 'all', '', who.is_owner, who.is_owner from who
  union all
  select 'some', '', false, who.is_owner or who.writes_all or exists (
    select from shared as s where pg_catalog.has_table_privilege(who.oid, s.oid, 'insert')) from who
  union all
  select 'topic', t.name,
    who.is_owner or who.reads_all or coalesce(pg_catalog.has_table_privilege(who.oid, s.oid, 'select'), false),
    who.is_owner or who.writes_all or coalesce(pg_catalog.has_table_privilege(who.oid, s.oid, 'insert'), false)
  from who cross join unnest(topics) as t(name) left join shared as s on s.relname = t.name
  union all
  select 'name', n.name, mine.is_mine, mine.is_mine
  from who cross join unnest(names) as n(name) cross join lateral (
    select who.is_owner or exists (
      select from pg_catalog.pg_roles as g
      where g.rolname = split_part(n.name, '.', 1) and pg_catalog.pg_has_role(who.oid, g.oid, 'usage')) as is_mine
  ) as mine
$$;

comment on table kafka.acls is
'Who may do what, if a gateway is told authorization = "acls": the same that Kafka''s tools and headgate gateway acls show';
comment on function kafka.share_topic(text) is
'Makes kafka_topics.<topic>, a view of one topic: grant select on it to readers and insert to writers';
