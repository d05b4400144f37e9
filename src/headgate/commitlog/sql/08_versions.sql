-- What every append changes, in a shape whose cost does not grow while a transaction elsewhere stays open.
--
-- Such a transaction, a backup's for example, keeps all versions of a row that came to be since. An index has entries for
-- them under the same key, and whoever looks for the newest goes through the others. So the key of these rows contains a
-- version that rises with every change: the newest is the first entry from the top, and a change finds its row by the
-- whole key. Each row is there once, as before. `kafka.head` is locked and never changed: that leaves no versions.
--
-- The newest is asked for as the last key up to the greatest possible version: as that could be any of many rows, no plan
-- that collects them first looks cheap, as it would if their first column were compared alone.
--
-- `kafka.partitions` becomes a view, so that whoever reads it, and gateways of the version before, go on.

-- A plan that reads the table as a whole would read the old versions, and a small table invites to that when the plan is
-- made, for as long as it is kept. So these tables are never small: rows of nobody fill as many pages as it takes.
create table kafka.states (
  part_id int not null,                      -- 0: the log as a whole, of which only the next (global) offset counts
  version bigint not null default 0,
  segment_id int,
  log_start_offset bigint not null default 0,
  next_offset bigint not null default 0,
  run_max_ts bigint not null default -1,
  size bigint not null default 0,
  compacted_to bigint not null default 0,
  compact_next bigint not null default 0,
  padding text,
  primary key (part_id, version)
) with (vacuum_truncate = false);
alter table kafka.states alter column padding set storage plain;
insert into kafka.states (part_id, padding) select -i, repeat('-', 8000) from generate_series(1, 256) as i;
insert into kafka.states (part_id, segment_id, log_start_offset, next_offset, run_max_ts, size, compacted_to, compact_next)
select part_id, segment_id, log_start_offset, next_offset, run_max_ts, size, compacted_to, compact_next
from kafka.partitions
union all
select 0, null, 0, next_global, -1, 0, 0, 0 from kafka.head;

alter table kafka.head drop column next_global;
alter table kafka.partitions rename to parts;

create view kafka.partitions as
select part.part_id, part.topic_id, part.index, part.class_id, state.segment_id, state.log_start_offset,
  state.next_offset, state.run_max_ts, state.size, state.compacted_to, state.compact_next
from kafka.parts as part
cross join lateral (
  select * from kafka.states as s where (s.part_id, s.version) <= (part.part_id, 9223372036854775807)
  order by s.part_id desc, s.version desc limit 1) as state
where state.part_id = part.part_id;

-- Whoever had a right to the table has it to the view.
do $$
declare
  given record;
begin
  for given in
    select a.privilege_type || coalesce(' (' || quote_ident(owned.attname) || ')', '') as privilege, a.is_grantable,
      case a.grantee when 0 then 'public' else a.grantee::regrole::text end as grantee
    from (
      select c.relowner, null::name as attname, c.relacl as acl from pg_class as c where c.oid = 'kafka.parts'::regclass
      union all
      select c.relowner, t.attname, t.attacl from pg_class as c join pg_attribute as t on t.attrelid = c.oid
      where c.oid = 'kafka.parts'::regclass
    ) as owned
    cross join lateral aclexplode(owned.acl) as a
    where a.grantee <> owned.relowner and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
  loop
    execute format('grant %s on kafka.partitions to %s %s', given.privilege, given.grantee,
      case when given.is_grantable then 'with grant option' else '' end);
  end loop;
end $$;

-- As before, of the view.
create or replace view kafka.messages as
select topics.name as topic, parts.index as partition, r."offset", r.global_offset, r.key, r.value, r.headers,
  r."timestamp"
from kafka.topics as topics
join kafka.partitions as parts on parts.topic_id = topics.id
cross join lateral (
  select b.*, case when attrs & 8 <> 0 then max_ts end as append_ts,
    coalesce(b.plain, substring(b.data from 62)) as bytes
  from kafka.batches as b
  where b.part_id = parts.part_id and b.last_offset >= parts.log_start_offset and attrs & 32 = 0
  offset 0
) as b
cross join lateral kafka.records(b.base_offset, b.base_global, b.base_ts, b.append_ts, b.key_at, b.value_len, b.key_len,
  b.ts_delta, b.ts_far, b.off_delta, b.bytes) as r
where r."offset" >= parts.log_start_offset;

create or replace view kafka.consumer_offsets as
select o.group_id, t.name as topic, o.partition, o.committed_offset, p.next_offset as end_offset,
  greatest(p.next_offset - greatest(o.committed_offset, p.log_start_offset), 0) as lag,
  case when position('\x00'::bytea in o.metadata) = 0 then convert_from(o.metadata, 'UTF8')
    else encode(o.metadata, 'escape') end as metadata,
  o.committed_at
from kafka.group_offsets as o
join kafka.topics as t on t.id = o.topic_id
join kafka.partitions as p on p.topic_id = o.topic_id and p.index = o.partition;

alter table kafka.parts
  drop column segment_id, drop column log_start_offset, drop column next_offset, drop column run_max_ts,
  drop column size, drop column compacted_to, drop column compact_next;

-- Seldom changes go through the view. What a statement does not change is left as it is by then.
create function kafka.change_partition() returns trigger language plpgsql as $$
declare
  state kafka.states;
begin
  if tg_op = 'INSERT' then
    insert into kafka.parts (topic_id, index, class_id) values (new.topic_id, new.index, new.class_id)
      returning part_id into new.part_id;
    insert into kafka.states (part_id) values (new.part_id);
    return new;
  end if;
  perform from kafka.head for update;
  if tg_op = 'DELETE' then
    delete from kafka.states where part_id = old.part_id;
    delete from kafka.parts where part_id = old.part_id;
    return old;
  end if;
  update kafka.parts set class_id = new.class_id where part_id = old.part_id and new.class_id <> old.class_id;
  select * into state from kafka.states as s where (s.part_id, s.version) <= (old.part_id, 9223372036854775807)
    order by s.part_id desc, s.version desc limit 1;
  update kafka.states as s set version = s.version + 1,
    segment_id = case when new.segment_id is distinct from old.segment_id then new.segment_id else s.segment_id end,
    log_start_offset = case when new.log_start_offset <> old.log_start_offset then new.log_start_offset
      else s.log_start_offset end,
    next_offset = case when new.next_offset <> old.next_offset then new.next_offset else s.next_offset end,
    run_max_ts = case when new.run_max_ts <> old.run_max_ts then new.run_max_ts else s.run_max_ts end,
    size = s.size + new.size - old.size,
    compacted_to = case when new.compacted_to <> old.compacted_to then new.compacted_to else s.compacted_to end,
    compact_next = case when new.compact_next <> old.compact_next then new.compact_next else s.compact_next end
  where s.part_id = old.part_id and s.version = state.version
  returning s.segment_id, s.log_start_offset, s.next_offset, s.run_max_ts, s.size, s.compacted_to, s.compact_next
  into new.segment_id, new.log_start_offset, new.next_offset, new.run_max_ts, new.size, new.compacted_to,
    new.compact_next;
  return case when found then new end;
end $$;
create trigger change instead of insert or update or delete on kafka.partitions
  for each row execute function kafka.change_partition();

alter table kafka.producers
  add column version bigint not null default 0,
  add column padding text,
  drop constraint producers_pkey,
  add primary key (part_id, producer_id, version),
  set (vacuum_truncate = false);
alter table kafka.producers alter column padding set storage plain;
insert into kafka.producers (part_id, producer_id, epoch, first_seqs, last_seqs, offsets, seen_at, padding)
select -i, 0, 0, '{}', '{}', '{}', 'infinity', repeat('-', 7900) from generate_series(1, 256) as i;

create or replace function kafka.place(incoming kafka.incoming[]) returns setof kafka.appended language plpgsql as $$
declare
  whole kafka.states;
begin
  select * into whole from kafka.states as s where (s.part_id, s.version) <= (0, 9223372036854775807)
    order by s.part_id desc, s.version desc limit 1;
  return query
  with arriving as materialized (
    select * from rows from (unnest(incoming)) with ordinality as batch
  ), targets as materialized (
    select part.part_id, class.segment_id, state.segment_id as segment_before, state.version, state.log_start_offset,
      state.next_offset, state.run_max_ts
    from (select distinct a.part_id from arriving as a) as wanted
    join kafka.parts as part using (part_id)
    join kafka.classes as class on class.id = part.class_id
    cross join lateral (
      select * from kafka.states as s where (s.part_id, s.version) <= (part.part_id, 9223372036854775807)
      order by s.part_id desc, s.version desc limit 1) as state
    where state.part_id = part.part_id
  ), placed as materialized (
    select batch.*, target.segment_id, target.segment_before, target.version, target.log_start_offset,
      target.next_offset + sum(batch.n) over of_part - batch.n as base_offset,
      whole.next_offset + sum(batch.n) over of_all - batch.n as base_global,
      greatest(target.run_max_ts, max(batch.max_ts) over of_part) as run_max_ts
    from arriving as batch
    join targets as target using (part_id)
    window of_part as (partition by batch.part_id order by batch.ordinality),
      of_all as (order by batch.ordinality)
  ), stored as (
    insert into kafka.batches (part_id, segment_id, base_offset, last_offset, base_global, base_ts, max_ts, run_max_ts,
      producer_id, n, size, base_seq, attrs, epoch, key_at, value_len, key_len, ts_delta, ts_far, data, plain)
    select p.part_id, p.segment_id, p.base_offset, p.base_offset + p.n - 1, p.base_global, p.base_ts, p.max_ts,
      p.run_max_ts, p.producer_id, p.n, p.size, p.base_seq, p.attrs, p.epoch, p.key_at, p.value_len, p.key_len,
      p.ts_delta, p.ts_far, p.data, p.plain
    from placed as p
  ), moved as (
    update kafka.states as state
    set version = state.version + 1, next_offset = state.next_offset + sums.n,
      run_max_ts = greatest(state.run_max_ts, sums.run_max_ts), size = state.size + sums.size,
      segment_id = sums.segment_id
    from (
      select p.part_id, min(p.version) as version, sum(p.n) as n, max(p.run_max_ts) as run_max_ts, sum(p.size) as size,
        min(p.segment_id) as segment_id
      from placed as p group by p.part_id
      union all
      select 0, whole.version, coalesce(sum(p.n), 0), -1, 0, null from placed as p
    ) as sums
    where state.part_id = sums.part_id and state.version = sums.version
  ), spanned as (
    insert into kafka.spans (part_id, first_offset, segment_id)
    select p.part_id, min(p.base_offset), p.segment_id from placed as p
    where p.segment_before is distinct from p.segment_id
    group by p.part_id, p.segment_id
  ), numbered as materialized (
    select p.part_id, p.producer_id, max(p.epoch) as epoch,
      (array_agg(p.base_seq order by p.ordinality desc))[1:5] as first_seqs,
      (array_agg(kafka.next_seq(p.base_seq, p.n - 1) order by p.ordinality desc))[1:5] as last_seqs,
      (array_agg(p.base_offset order by p.ordinality desc))[1:5] as offsets
    from placed as p where p.producer_id >= 0
    group by p.part_id, p.producer_id
  ), continued as materialized (
    select n.part_id, n.producer_id, n.epoch, n.first_seqs, n.last_seqs, n.offsets, known.version,
      -- The batches of an older epoch are nobody's duplicates any more.
      case when known.epoch = n.epoch then known.first_seqs end as known_firsts,
      case when known.epoch = n.epoch then known.last_seqs end as known_lasts,
      case when known.epoch = n.epoch then known.offsets end as known_offsets
    from numbered as n
    left join lateral (
      select * from kafka.producers as k
      where (k.part_id, k.producer_id, k.version) <= (n.part_id, n.producer_id, 9223372036854775807)
      order by k.part_id desc, k.producer_id desc, k.version desc limit 1
    ) as known on (known.part_id, known.producer_id) = (n.part_id, n.producer_id)
  ), forgotten as (
    delete from kafka.producers as known using continued as c
    where known.part_id = c.part_id and known.producer_id = c.producer_id and known.version = c.version
  ), remembered as (
    insert into kafka.producers (part_id, producer_id, version, epoch, first_seqs, last_seqs, offsets)
    select c.part_id, c.producer_id, coalesce(c.version + 1, 0), c.epoch, (c.first_seqs || c.known_firsts)[1:5],
      (c.last_seqs || c.known_lasts)[1:5], (c.offsets || c.known_offsets)[1:5]
    from continued as c
  )
  select a.ordinality::int, (case when p.part_id is null then 3 else 0 end)::smallint,
    coalesce(p.base_offset, -1)::bigint, coalesce(p.log_start_offset, -1), coalesce(p.base_global, -1)::bigint
  from arriving as a left join placed as p using (ordinality)
  order by 1;
end $$;

create or replace function kafka.sequence_error(batch kafka.incoming, out error smallint, out original bigint)
language plpgsql as $$
declare
  known kafka.producers;
  at int;
begin
  error := 0;
  original := -1;
  select * into known from kafka.producers as k
    where (k.part_id, k.producer_id, k.version) <= (batch.part_id, batch.producer_id, 9223372036854775807)
    order by k.part_id desc, k.producer_id desc, k.version desc limit 1;
  if (known.part_id, known.producer_id) is distinct from (batch.part_id, batch.producer_id) then
    return;
  end if;
  if batch.epoch < known.epoch then
    error := 47;
  elsif batch.epoch > known.epoch then
    error := case when batch.base_seq = 0 then 0 else 45 end;
  elsif batch.base_seq <> kafka.next_seq(known.last_seqs[1], 1) then
    error := 45;
    for at in 1 .. cardinality(known.first_seqs) loop
      if known.first_seqs[at] = batch.base_seq and known.last_seqs[at] = kafka.next_seq(batch.base_seq, batch.n - 1) then
        error := 46;
        original := known.offsets[at];
      end if;
    end loop;
  end if;
end $$;

-- In PL/pgSQL: a function of SQL would be planned anew by every append.
create or replace function kafka.in_sequence(incoming kafka.incoming[]) returns boolean language plpgsql as $$
begin
  return (
    select coalesce(bool_and(
      before_epoch is null
      or epoch = before_epoch and base_seq = kafka.next_seq(before_seq, 1)
      or epoch > before_epoch and base_seq = 0), true)
    from (
      select batch.epoch, batch.base_seq,
        coalesce(lag(batch.epoch::int) over chain, known.epoch) as before_epoch,
        coalesce(lag(kafka.next_seq(batch.base_seq, batch.n - 1)) over chain, known.last_seqs[1]) as before_seq
      from rows from (unnest(incoming)) with ordinality as batch
      left join lateral (
        select * from kafka.producers as k
        where (k.part_id, k.producer_id, k.version) <= (batch.part_id, batch.producer_id, 9223372036854775807)
        order by k.part_id desc, k.producer_id desc, k.version desc limit 1
      ) as known on (known.part_id, known.producer_id) = (batch.part_id, batch.producer_id)
      where batch.producer_id >= 0
      window chain as (partition by batch.part_id, batch.producer_id order by batch.ordinality)
    ) as chained);
end $$;

-- Planning takes longer than the rest, and the number of batches, which is all that it could learn, changes no plan.
alter function kafka.append(kafka.incoming[], boolean, boolean) set plan_cache_mode = force_generic_plan;

-- Those from an id on: below it, an index has entries of rows that are long gone, as long as a transaction is open.
create function kafka.take_inbox(most_rows int, most_bytes bigint, least_id bigint)
returns table (id bigint, topic_id int, partition int, key bytea, value bytea, headers text, written_ms bigint)
language sql as $$
  with oldest as materialized (
    select i.id, coalesce(length(i.key), 0) + coalesce(length(i.value), 0) + length(i.headers::text) + 100 as octets
    from kafka.inbox as i where i.id >= least_id order by i.id limit most_rows
  ), fitting as materialized (
    select s.id from (select o.id, sum(o.octets) over (order by o.id) - o.octets as before from oldest as o) as s
    where s.before < most_bytes
  ), taken as (
    delete from kafka.inbox as i where i.id = any (array(select f.id from fitting as f)) returning i.*
  )
  select t.id, t.topic_id, t.partition, t.key, t.value, t.headers::text,
    (extract(epoch from case when t.written_at between '1970-01-01' and '9999-12-31' then t.written_at
      else clock_timestamp() end) * 1000)::bigint
  from taken as t order by t.id
$$;

-- These stop when they have enough. A plan that sorts reads everything first, and may look cheaper by old statistics.
alter function kafka.read(text, int, bigint, int) set enable_sort = off set enable_bitmapscan = off;
alter function kafka.fetch(int[], bigint[], int[], bigint) set enable_sort = off set enable_bitmapscan = off;
alter function kafka.expired(bigint, bigint, bigint) set enable_sort = off set enable_bitmapscan = off;
