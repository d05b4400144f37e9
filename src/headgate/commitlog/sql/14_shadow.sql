-- Topics that are mirrored to another Kafka, or from one: how far, and which offset there is which offset here.
--
--   select * from kafka.shadow_lag;
--   select kafka.shadow_offset('mirror', 'orders', 0, 1000);          -- where offset 1000 lies at the other cluster
--   select kafka.shadow_source_offset('mirror', 'orders', 0, 998);    -- and back
--
-- A link is one mirror: what one pipeline does with one cluster. Its columns that begin with `ext_` are about the other
-- cluster, whichever way the messages go; all others are about this log.

create table kafka.shadow_links (
  name text collate "C" primary key,
  direction text not null default 'out' check (direction in ('out', 'in')),
  servers text not null,
  cluster_id text,                           -- of the other cluster, as it says itself
  producer_id bigint,                        -- given by that cluster: all batches of this link carry it
  topic_prefix text not null default '',
  percent int not null default 100 check (percent between 1 and 100),
  groups text[] not null default '{}',       -- patterns with * of consumer groups whose offsets go along
  group_interval interval not null default '5 seconds',
  made_at timestamptz not null default clock_timestamp(),
  seen_at timestamptz not null default clock_timestamp(),
  last_error text,
  last_error_at timestamptz,
  groups_error text,                         -- why offsets of groups could not be pushed the last time; null: they were
  groups_error_at timestamptz
);

-- How far a partition is. What is about to be sent stands in the arrays `planned_...`: after a crash they say what the
-- records are that lie at the other cluster behind `ext_next`.
create table kafka.shadow_partitions (
  link text collate "C" not null references kafka.shadow_links on delete cascade,
  topic text collate "C" not null,
  partition int not null,
  topic_uuid uuid not null,                  -- of the topic here: one that was made anew is another topic
  ext_topic text collate "C" not null,
  ext_uuid uuid,                             -- null: the cluster is too old to tell
  mirrored_to bigint not null,               -- all offsets before it are mirrored, or there is nothing to mirror
  ext_next bigint not null,                  -- the offset that the next record gets there
  records bigint not null default 0,         -- how many have been mirrored
  bytes bigint not null default 0,
  producer_epoch int not null default 0,
  epoch_records bigint not null default 0,   -- how many had been mirrored when that epoch began
  digest bytea not null default '\x',        -- of all batches, chained: see headgate.shadow.digest
  planned_counts int[] not null default '{}',  -- records of each batch
  planned_marks bigint[] not null default '{}', -- `mirrored_to` behind it; below 0: of kafka.shadow_rejected, -id
  planned_runs int[] not null default '{}',    -- how many runs it has
  planned_bases bigint[] not null default '{}', -- and these are they
  planned_ends bigint[] not null default '{}',
  version bigint not null default 0,         -- rises with every change, so that only one writer can make the next
  last_error text,
  last_error_at timestamptz,
  updated_at timestamptz not null default clock_timestamp(),
  primary key (link, topic, partition),
  unique (link, ext_topic, partition)
) with (fillfactor = 50);

-- Offsets from `base_offset` to before `end_offset` lie at `ext_base` and behind it, one after the other. A topic
-- without gaps has one row. The rows of a partition rise in both.
create table kafka.shadow_runs (
  link text collate "C" not null,
  topic text collate "C" not null,
  partition int not null,
  base_offset bigint not null,
  end_offset bigint not null check (end_offset > base_offset),
  ext_base bigint not null,
  primary key (link, topic, partition, base_offset),
  unique (link, topic, partition, ext_base),
  foreign key (link, topic, partition) references kafka.shadow_partitions on delete cascade
) with (fillfactor = 50);

-- Batches that the other side refuses for what they are. They are not in the map, also when they were sent again: they
-- lie behind what came later then.
create table kafka.shadow_rejected (
  id bigint generated always as identity primary key,
  link text collate "C" not null,
  topic text collate "C" not null,
  partition int not null,
  base_offset bigint not null,
  end_offset bigint not null,
  reason text not null,
  at timestamptz not null default clock_timestamp(),
  retry boolean not null default false,      -- somebody wants it sent again
  unique (link, topic, partition, base_offset),
  foreign key (link, topic, partition) references kafka.shadow_partitions on delete cascade
);

-- The offsets of groups as they were pushed, or why they were not.
create table kafka.shadow_groups (
  link text collate "C" not null references kafka.shadow_links on delete cascade,
  group_id text collate "C" not null,
  topic text collate "C" not null,
  partition int not null,
  committed_offset bigint not null,          -- here
  ext_offset bigint,                         -- there; null: not pushed so far
  state text not null,                       -- pushed, waiting, live, ahead or failed
  updated_at timestamptz not null default clock_timestamp(),
  primary key (link, group_id, topic, partition)
) with (fillfactor = 50);

-- The offset at the other cluster of the first mirrored message at or behind an offset here; the one that comes next
-- if all is mirrored. Null: not mirrored so far, or no such partition.
create function kafka.shadow_offset(link text, topic text, partition int, source_offset bigint) returns bigint
language plpgsql stable as $$
#variable_conflict use_variable
declare
  part record;
  run record;
begin
  select p.mirrored_to, p.ext_next into part from kafka.shadow_partitions as p
    where p.link = link and p.topic = topic and p.partition = partition;
  if part.mirrored_to is null or source_offset > part.mirrored_to then
    return null;
  end if;
  select r.end_offset, r.ext_base + source_offset - r.base_offset as found into run from kafka.shadow_runs as r
    where r.link = link and r.topic = topic and r.partition = partition and r.base_offset <= source_offset
    order by r.base_offset desc limit 1;
  if run.end_offset > source_offset then
    return run.found;
  end if;
  select r.ext_base as found into run from kafka.shadow_runs as r
    where r.link = link and r.topic = topic and r.partition = partition and r.base_offset > source_offset
    order by r.base_offset limit 1;
  return coalesce(run.found, part.ext_next);
end $$;

-- The way back: the offset here of the first mirrored message at or behind an offset at the other cluster.
create function kafka.shadow_source_offset(link text, topic text, partition int, ext_offset bigint) returns bigint
language plpgsql stable as $$
#variable_conflict use_variable
declare
  part record;
  run record;
begin
  select p.mirrored_to, p.ext_next into part from kafka.shadow_partitions as p
    where p.link = link and p.topic = topic and p.partition = partition;
  if part.mirrored_to is null or ext_offset > part.ext_next then
    return null;
  end if;
  select r.base_offset + ext_offset - r.ext_base as found, r.end_offset into run from kafka.shadow_runs as r
    where r.link = link and r.topic = topic and r.partition = partition and r.ext_base <= ext_offset
    order by r.ext_base desc limit 1;
  if run.end_offset > run.found then
    return run.found;
  end if;
  select r.base_offset as found into run from kafka.shadow_runs as r
    where r.link = link and r.topic = topic and r.partition = partition and r.ext_base > ext_offset
    order by r.ext_base limit 1;
  return coalesce(run.found, part.mirrored_to);
end $$;

-- Notes runs, in their order; one that continues the one before it extends it.
create function kafka.shadow_map(link text, topic text, partition int, bases bigint[], ends bigint[], ext_bases bigint[])
returns void language plpgsql as $$
#variable_conflict use_variable
begin
  for i in 1 .. cardinality(bases) loop
    update kafka.shadow_runs as r set end_offset = ends[i]
    where r.link = link and r.topic = topic and r.partition = partition
      and r.base_offset = (
        select l.base_offset from kafka.shadow_runs as l
        where l.link = link and l.topic = topic and l.partition = partition
        order by l.base_offset desc limit 1)
      and r.end_offset = bases[i] and r.ext_base + r.end_offset - r.base_offset = ext_bases[i];
    if not found then
      insert into kafka.shadow_runs (link, topic, partition, base_offset, end_offset, ext_base)
      values (link, topic, partition, bases[i], ends[i], ext_bases[i]);
    end if;
  end loop;
end $$;

-- Forgets runs that lie before the beginning of their partitions. Returns how many.
create function kafka.shadow_prune(of_link text) returns bigint language sql as $$
  with gone as (
    delete from kafka.shadow_runs as r
    using kafka.shadow_partitions as s, kafka.topics as t, kafka.partitions as p
    where s.link = of_link and (r.link, r.topic, r.partition) = (s.link, s.topic, s.partition)
      and t.name = s.topic and t.uuid = s.topic_uuid and p.topic_id = t.id and p.index = s.partition
      and r.base_offset < p.log_start_offset and r.end_offset <= p.log_start_offset
    returning 1)
  select count(*) from gone
$$;

-- Forgets a link, or one of its topics: it is mirrored as if it never had been. Returns how many partitions that were.
create function kafka.shadow_forget(of_link text, of_topic text default null) returns bigint language plpgsql as $$
declare
  forgotten bigint;
begin
  delete from kafka.shadow_groups as g where g.link = of_link and (of_topic is null or g.topic = of_topic);
  delete from kafka.shadow_partitions as p where p.link = of_link and (of_topic is null or p.topic = of_topic);
  get diagnostics forgotten = row_count;
  if of_topic is null then
    delete from kafka.shadow_links as l where l.name = of_link;
  end if;
  return forgotten;
end $$;

-- Has rejected batches sent once more, behind what is mirrored by then. Returns how many.
create function kafka.shadow_retry(of_link text, of_topic text default null) returns bigint language sql as $$
  with wanted as (
    update kafka.shadow_rejected as r set retry = true
    where r.link = of_link and (of_topic is null or r.topic = of_topic)
    returning 1)
  select count(*) from wanted
$$;

-- The time of the first batch at or behind an offset, in milliseconds. Null: there is none, or it has no time.
create function kafka.shadow_first_ms(of_part int, first bigint, stop bigint) returns bigint
language plpgsql stable as $$
declare
  span record;
  found record;
begin
  for span in select * from kafka.spans_from(of_part, first) loop
    select b.base_offset, b.max_ts into found from kafka.batches as b
    where b.segment_id = span.segment_id and b.part_id = of_part and b.last_offset >= first and b.last_offset < span.stop
    order by b.last_offset limit 1;
    exit when found.base_offset is not null;
  end loop;
  return case when found.base_offset < stop then nullif(found.max_ts, -1) end;
end $$;
alter function kafka.shadow_first_ms(int, bigint, bigint) set enable_sort = off set enable_bitmapscan = off;

-- How far every partition of every link is behind. `bytes` is an estimate, by the mean size of a message there. A link
-- into this log knows the end of the other cluster only when it reads: its lag is in the status of its pipeline.
create view kafka.shadow_lag as
select s.link, s.topic, s.partition, s.mirrored_to, p.last_stable_offset as end_offset, w.records,
  case when p.next_offset > p.log_start_offset
    then (w.records::numeric * p.size / (p.next_offset - p.log_start_offset))::bigint else 0 end as bytes,
  case when w.records = 0 then 0
    else greatest(extract(epoch from clock_timestamp())
      - kafka.shadow_first_ms(p.part_id, s.mirrored_to, p.last_stable_offset) / 1000.0, 0) end::double precision
    as seconds,
  (select count(*) from kafka.shadow_rejected as r
    where (r.link, r.topic, r.partition) = (s.link, s.topic, s.partition)) as rejected,
  coalesce(s.last_error, l.last_error) as last_error,
  case when s.last_error is null then l.last_error_at else s.last_error_at end as last_error_at
from kafka.shadow_partitions as s
join kafka.shadow_links as l on l.name = s.link and l.direction = 'out'
join kafka.topics as t on t.name = s.topic and t.uuid = s.topic_uuid
join kafka.partitions as p on p.topic_id = t.id and p.index = s.partition
cross join lateral (
  select greatest(p.last_stable_offset - greatest(s.mirrored_to, p.log_start_offset), 0) as records) as w;

comment on table kafka.shadow_links is 'Mirrors of topics at other Kafka clusters: one row for each';
comment on table kafka.shadow_partitions is 'How far each partition of a mirror is';
comment on table kafka.shadow_runs is 'Which offsets here are which offsets there: ask kafka.shadow_offset';
comment on table kafka.shadow_rejected is
'Batches that the other side refused; select kafka.shadow_retry(link) has them sent again, at the end';
comment on view kafka.shadow_lag is 'How far each partition of each mirror is behind, and its last error';
comment on function kafka.shadow_offset(text, text, int, bigint) is
'Where an offset of this log lies at the other cluster: exact; null if that is not mirrored so far';
comment on function kafka.shadow_source_offset(text, text, int, bigint) is
'Where an offset of the other cluster lies in this log';
