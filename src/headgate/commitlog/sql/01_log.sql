-- The log: topics, partitions, record batches in segments, and the one function that appends.
--
-- Every change of `partitions`, `classes` and `batches` that readers can see happens under the lock of the one row of
-- `head`. So commits are totally ordered: whoever sees an offset, or a global offset, sees all smaller ones.

create table kafka.head (
  only_row boolean primary key default true check (only_row),
  next_global bigint not null default 0
) with (fillfactor = 10);
insert into kafka.head default values;

-- Rises with every change of a topic, so that whoever missed a notification finds out.
create table kafka.catalog (
  only_row boolean primary key default true check (only_row),
  version bigint not null default 0
) with (fillfactor = 10);
insert into kafka.catalog default values;

create sequence kafka.producer_ids minvalue 0 start 0 cache 1;

create table kafka.topics (
  id int generated always as identity primary key,
  uuid uuid not null unique default gen_random_uuid(),
  name text collate "C" not null unique,
  configs jsonb not null default '{}',
  created_at timestamptz not null default now()
);

-- Topics that keep their records equally long share segments, so that old ones can be dropped whole.
create table kafka.classes (
  id int generated always as identity primary key,
  name text collate "C" not null unique,
  retention_ms bigint,                       -- null: nothing expires by its age
  segment_id int                             -- where new batches go
);

create table kafka.segments (
  id int generated always as identity primary key,
  class_id int not null,
  opened_at timestamptz not null default clock_timestamp(),
  closed_at timestamptz,
  buried bigint not null default 0,          -- records whose spans are gone while their rows may be there
  compacted bigint not null default 0,       -- records that compaction has removed
  thinned double precision not null default 0 -- the share of dead records when they were last cleared out
);

create table kafka.partitions (
  part_id int generated always as identity primary key,
  topic_id int not null,
  index int not null,
  class_id int not null,
  segment_id int,                            -- where its newest batch is
  log_start_offset bigint not null default 0,
  next_offset bigint not null default 0,
  run_max_ts bigint not null default -1,     -- the greatest timestamp ever
  size bigint not null default 0,            -- bytes of the batches that are alive
  compacted_to bigint not null default 0,    -- below this, no key comes twice
  compact_next bigint not null default 0,    -- how far the next compaction goes: not to the newest batches
  unique (topic_id, index)
) with (fillfactor = 50);

-- Where the offsets of a partition lie: from `first_offset` up to the next span's.
create table kafka.spans (
  part_id int not null,
  first_offset bigint not null,
  segment_id int not null,
  primary key (part_id, first_offset)
);
create index on kafka.spans (segment_id);

-- The sequence numbers of idempotent producers; the arrays hold their last five batches, the newest last.
create table kafka.producers (
  part_id int not null,
  producer_id bigint not null,
  epoch int not null,
  first_seqs int[] not null,
  last_seqs int[] not null,
  offsets bigint[] not null,
  seen_at timestamptz not null default now(),
  primary key (part_id, producer_id)
) with (fillfactor = 50);

create table kafka.batches (
  part_id int not null,
  segment_id int not null,
  base_offset bigint not null,               -- what the batch itself says does not count
  last_offset bigint not null,
  base_global bigint not null,
  base_ts bigint not null,
  max_ts bigint not null,
  run_max_ts bigint not null,                -- of the partition up to here: it only rises
  producer_id bigint not null,
  n int not null,                            -- records
  size int not null,                         -- bytes of `data`
  base_seq int not null,
  attrs smallint not null,
  epoch smallint not null,
  -- Where the records are in `plain`, or else in `data` behind its header. Null if the topic is not read by SQL.
  key_at int[],
  value_len int[],
  key_len int[],                             -- null: no record has a key
  ts_delta int[],                            -- null: all 0
  ts_far bigint[],                           -- instead of ts_delta, if some do not fit
  off_delta int[],                           -- null: 0, 1, 2 ...
  data bytea not null,
  plain bytea,                               -- the records of a compressed batch, for SQL
  primary key (part_id, last_offset, segment_id)
) partition by list (segment_id);
alter table kafka.batches
  alter column data set storage external,
  alter column key_at set storage external,
  alter column value_len set storage external,
  alter column key_len set storage external,
  alter column ts_delta set storage external;

create function kafka.open_segment(of_class int) returns int language plpgsql as $$
declare
  new_id int;
begin
  insert into kafka.segments (class_id) values (of_class) returning id into new_id;
  -- Made first and attached then: this holds up neither readers nor writers.
  execute format(
    'create table kafka.segment_%s (like kafka.batches including all) with (toast_tuple_target = 8160)', new_id);
  execute format('alter table kafka.batches attach partition kafka.segment_%s for values in (%s)', new_id, new_id);
  perform from kafka.head for update;
  update kafka.segments set closed_at = clock_timestamp()
    where id = (select segment_id from kafka.classes where id = of_class);
  update kafka.classes set segment_id = new_id where id = of_class;
  return new_id;
end $$;

create function kafka.class_of(class_name text, keep_ms bigint) returns int language plpgsql as $$
declare
  found_id int;
begin
  select id into found_id from kafka.classes where name = class_name;
  if found_id is null then
    insert into kafka.classes (name, retention_ms) values (class_name, keep_ms) returning id into found_id;
    perform kafka.open_segment(found_id);
  end if;
  return found_id;
end $$;

-- One batch on its way into the log. `kafka.append` is called with an array of these.
create type kafka.incoming as (
  part_id int,
  n int,
  size int,
  attrs smallint,
  epoch smallint,
  base_seq int,
  base_ts bigint,
  max_ts bigint,
  producer_id bigint,
  key_at int[],
  value_len int[],
  key_len int[],
  ts_delta int[],
  ts_far bigint[],
  data bytea,
  plain bytea
);

create type kafka.appended as (
  ord int,
  error smallint,
  base_offset bigint,
  log_start_offset bigint,
  base_global bigint
);

-- The sequence number `steps` after `seq`; they begin again at 0 after 2^31 - 1.
create function kafka.next_seq(seq int, steps int) returns int language sql immutable parallel safe as $$
  select ((seq::bigint + steps) % 2147483648)::int
$$;

-- Gives the batches their places and stores them. The caller holds the lock of `head` and has checked the sequences.
create function kafka.place(incoming kafka.incoming[]) returns setof kafka.appended language plpgsql as $$
declare
  first_global bigint;
begin
  select next_global into first_global from kafka.head;
  return query
  with arriving as materialized (
    select * from rows from (unnest(incoming)) with ordinality as batch
  ), placed as materialized (
    select batch.*, class.segment_id, part.segment_id as segment_before, part.log_start_offset,
      part.next_offset + sum(batch.n) over of_part - batch.n as base_offset,
      first_global + sum(batch.n) over of_all - batch.n as base_global,
      greatest(part.run_max_ts, max(batch.max_ts) over of_part) as run_max_ts
    from arriving as batch
    join kafka.partitions as part using (part_id)
    join kafka.classes as class on class.id = part.class_id
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
    update kafka.partitions as part
    set next_offset = sums.next_offset, run_max_ts = sums.run_max_ts, size = part.size + sums.size,
      segment_id = sums.segment_id
    from (
      select p.part_id, max(p.base_offset + p.n) as next_offset, max(p.run_max_ts) as run_max_ts,
        sum(p.size) as size, min(p.segment_id) as segment_id
      from placed as p group by p.part_id
    ) as sums
    where part.part_id = sums.part_id
  ), spanned as (
    insert into kafka.spans (part_id, first_offset, segment_id)
    select p.part_id, min(p.base_offset), p.segment_id from placed as p
    where p.segment_before is distinct from p.segment_id
    group by p.part_id, p.segment_id
  ), counted as (
    update kafka.head set next_global = first_global + (select coalesce(sum(p.n), 0) from placed as p)
  ), remembered as (
    insert into kafka.producers as known (part_id, producer_id, epoch, first_seqs, last_seqs, offsets)
    select p.part_id, p.producer_id, max(p.epoch),
      (array_agg(p.base_seq order by p.ordinality desc))[1:5],
      (array_agg(kafka.next_seq(p.base_seq, p.n - 1) order by p.ordinality desc))[1:5],
      (array_agg(p.base_offset order by p.ordinality desc))[1:5]
    from placed as p where p.producer_id >= 0
    group by p.part_id, p.producer_id
    on conflict (part_id, producer_id) do update set
      epoch = excluded.epoch,
      -- The batches of an older epoch are nobody's duplicates any more.
      first_seqs = (excluded.first_seqs || case when known.epoch = excluded.epoch then known.first_seqs end)[1:5],
      last_seqs = (excluded.last_seqs || case when known.epoch = excluded.epoch then known.last_seqs end)[1:5],
      offsets = (excluded.offsets || case when known.epoch = excluded.epoch then known.offsets end)[1:5],
      seen_at = now()
  )
  select a.ordinality::int, (case when p.part_id is null then 3 else 0 end)::smallint,
    coalesce(p.base_offset, -1)::bigint, coalesce(p.log_start_offset, -1), coalesce(p.base_global, -1)::bigint
  from arriving as a left join placed as p using (ordinality)
  order by 1;
end $$;

-- What Kafka says to a batch of an idempotent producer: 0 it is next, 45 out of order, 47 of an old epoch, 46 seen.
create function kafka.sequence_error(batch kafka.incoming, out error smallint, out original bigint)
language plpgsql as $$
declare
  known kafka.producers;
  at int;
begin
  error := 0;
  original := -1;
  select * into known from kafka.producers where part_id = batch.part_id and producer_id = batch.producer_id;
  if not found then
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

-- Whether every idempotent batch follows the one before it, stored or among these.
create function kafka.in_sequence(incoming kafka.incoming[]) returns boolean language sql as $$
  select coalesce(bool_and(
    before_epoch is null
    or epoch = before_epoch and base_seq = kafka.next_seq(before_seq, 1)
    or epoch > before_epoch and base_seq = 0), true)
  from (
    select batch.epoch, batch.base_seq,
      coalesce(lag(batch.epoch::int) over chain, known.epoch) as before_epoch,
      coalesce(lag(kafka.next_seq(batch.base_seq, batch.n - 1)) over chain, known.last_seqs[1]) as before_seq
    from rows from (unnest(incoming)) with ordinality as batch
    left join kafka.producers as known using (part_id, producer_id)
    where batch.producer_id >= 0
    window chain as (partition by batch.part_id, batch.producer_id order by batch.ordinality)
  ) as chained
$$;

-- The one way into the log: one call is one transaction. Answers for every batch, in order; `error` is Kafka's code.
-- A batch that was stored before gets its first offset again.
create function kafka.append(incoming kafka.incoming[], has_producers boolean, durable boolean)
returns setof kafka.appended language plpgsql as $$
declare
  i int;
  verdict record;
  row kafka.appended;
begin
  perform from kafka.head for update;
  if not durable then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  if not has_producers or kafka.in_sequence(incoming) then
    return query select * from kafka.place(incoming);
    return;
  end if;
  for i in 1 .. cardinality(incoming) loop  -- rare, so one after the other
    select * into verdict from kafka.sequence_error(incoming[i]) where incoming[i].producer_id >= 0;
    if verdict.error is null or verdict.error = 0 then
      select * into row from kafka.place(incoming[i:i]);
    else
      select i, case verdict.error when 46 then 0 else verdict.error end, verdict.original,
        coalesce(max(log_start_offset), -1), -1
        into row from kafka.partitions where part_id = incoming[i].part_id;
    end if;
    row.ord := i;
    return next row;
  end loop;
end $$;

-- Its batches are out of reach from now on. They go with their segment, or when the housekeeper finds their spans.
create function kafka.delete_topic(gone int) returns void language plpgsql as $$
begin
  perform from kafka.head for update;
  delete from kafka.producers where part_id in (select part_id from kafka.partitions where topic_id = gone);
  delete from kafka.partitions where topic_id = gone;
  delete from kafka.topics where id = gone;
end $$;

create function kafka.alter_topic(altered int, new_configs jsonb, class_name text, keep_ms bigint)
returns void language plpgsql as $$
declare
  new_class int := kafka.class_of(class_name, keep_ms);
begin
  perform from kafka.head for update;
  update kafka.topics set configs = new_configs where id = altered;
  update kafka.partitions set class_id = new_class where topic_id = altered and class_id <> new_class;
end $$;

-- The spans of a partition that hold offsets from `first` on, in order; `stop` is where each ends.
create function kafka.spans_from(of_part int, first bigint)
returns table (segment_id int, start bigint, stop bigint) language sql stable rows 4 as $$
  select s.segment_id, s.first_offset, lead(s.first_offset, 1, 9223372036854775807) over (order by s.first_offset)
  from kafka.spans as s
  where s.part_id = of_part and s.first_offset >= (
    select coalesce(max(f.first_offset), 0) from kafka.spans as f where f.part_id = of_part and f.first_offset <= first)
  order by s.first_offset
$$;

-- For every wanted partition a row with its bounds (null if it is gone), then its batches from the offset on, until one
-- of the limits is reached. The first batch of all may go beyond them, so that a reader always gets on.
create function kafka.fetch(part_ids int[], offsets bigint[], limits int[], total bigint)
returns table (ord int, next_offset bigint, log_start_offset bigint, base_offset bigint, last_offset bigint, data bytea)
language plpgsql stable rows 100 as $$
#variable_conflict use_variable
declare
  want int;
  span record;
  batch record;
  room bigint;
  is_first boolean := true;
begin
  for want in 1 .. cardinality(part_ids) loop
    ord := want;
    next_offset := null;
    log_start_offset := null;
    base_offset := null;
    last_offset := null;
    data := null;
    select part.next_offset, part.log_start_offset into next_offset, log_start_offset
      from kafka.partitions as part where part.part_id = part_ids[want];
    return next;
    continue when next_offset is null or offsets[want] < log_start_offset or offsets[want] >= next_offset;
    room := least(limits[want], total);
    <<spans>>
    for span in select * from kafka.spans_from(part_ids[want], offsets[want])
    loop
      for batch in
        select b.base_offset, b.last_offset, b.size, b.data from kafka.batches as b
        where b.segment_id = span.segment_id and b.part_id = part_ids[want]
          and b.last_offset >= offsets[want] and b.last_offset < span.stop
        order by b.last_offset
      loop
        exit spans when batch.size > room and not is_first;
        is_first := false;
        room := room - batch.size;
        total := total - batch.size;
        base_offset := batch.base_offset;
        last_offset := batch.last_offset;
        data := batch.data;
        return next;
      end loop;
    end loop;
  end loop;
end $$;

-- The first batch that contains or follows an offset and has a record of that time or later. No column: there is none.
create function kafka.batch_from(of_part int, first bigint, least_ts bigint,
  out base_offset bigint, out last_offset bigint, out run_max_ts bigint, out data bytea)
language plpgsql stable as $$
declare
  span record;
begin
  for span in select * from kafka.spans_from(of_part, first) loop
    select b.base_offset, b.last_offset, b.run_max_ts, b.data
    into base_offset, last_offset, run_max_ts, data
    from kafka.batches as b
    where b.segment_id = span.segment_id and b.part_id = of_part
      and b.last_offset >= first and b.last_offset < span.stop and b.max_ts >= least_ts
    order by b.last_offset limit 1;
    exit when base_offset is not null;
  end loop;
end $$;

-- The first batch from an offset on in which the running maximum of the timestamps has reached a time. As that only
-- rises, the batch is found by halving, with no index but that of the offsets; then by walking on, in case the records
-- that had raised the maximum have been deleted.
create function kafka.at_time(of_part int, wanted_ts bigint, first bigint,
  out base_offset bigint, out last_offset bigint, out data bytea)
language plpgsql stable as $$
declare
  low bigint := first;
  high bigint;
  middle bigint;
  probe record;
begin
  select greatest(low, p.log_start_offset), p.next_offset into low, high
    from kafka.partitions as p where p.part_id = of_part and p.run_max_ts >= wanted_ts;
  while low < high loop
    middle := low + (high - low) / 2;
    select b.last_offset, b.run_max_ts into probe from kafka.batch_from(of_part, middle, -9223372036854775808) as b;
    if probe.run_max_ts is null or probe.run_max_ts >= wanted_ts then
      high := middle;
    else
      low := probe.last_offset + 1;
    end if;
  end loop;
  if low is not null then
    select b.base_offset, b.last_offset, b.data into base_offset, last_offset, data
      from kafka.batch_from(of_part, low, wanted_ts) as b;
  end if;
end $$;

-- Moves the beginning of a partition forward, never back; -1 stands for its end. Null if there is no such offset.
create function kafka.delete_records(of_part int, before bigint, out log_start_offset bigint, out next_offset bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  part kafka.partitions;
  new_start bigint;
  dropped bigint;
  old_start bigint;
begin
  loop
    select * into part from kafka.partitions where part_id = of_part;
    new_start := case when before = -1 then part.next_offset else before end;
    if part.part_id is null or new_start > part.next_offset or new_start < 0 then
      return;
    end if;
    new_start := greatest(new_start, part.log_start_offset);
    -- Counted before the log is locked, and again only if somebody else has moved the beginning meanwhile.
    select coalesce(sum(b.size), 0) into dropped
    from kafka.spans_from(of_part, part.log_start_offset) as s
    cross join lateral (
      select size from kafka.batches as b
      where b.segment_id = s.segment_id and b.part_id = of_part
        and b.last_offset >= greatest(s.start, part.log_start_offset) and b.last_offset < least(s.stop, new_start)
    ) as b;
    perform from kafka.head for update;
    select p.log_start_offset into old_start from kafka.partitions as p where p.part_id = of_part;
    exit when old_start = part.log_start_offset;
  end loop;
  update kafka.partitions as p set log_start_offset = new_start, size = p.size - dropped where p.part_id = of_part
  returning p.log_start_offset, p.next_offset into log_start_offset, next_offset;
end $$;

-- Where the partitions of topics that delete should begin, if not where they do: behind all batches that are too old
-- and, oldest first, those that are too much. The arguments are the settings of topics that have none.
create function kafka.expired(now_ms bigint, default_ms bigint, default_bytes bigint)
returns table (part_id int, new_start bigint) language plpgsql stable as $$
#variable_conflict use_column
declare
  part record;
  span record;
  batch record;
  room bigint;
begin
  for part in
    select p.part_id, p.log_start_offset, p.next_offset, p.size,
      coalesce((t.configs ->> 'retention.ms')::bigint, default_ms) as keep_ms,
      coalesce((t.configs ->> 'retention.bytes')::bigint, default_bytes) as keep_bytes
    from kafka.partitions as p join kafka.topics as t on t.id = p.topic_id
    where p.next_offset > p.log_start_offset and coalesce(t.configs ->> 'cleanup.policy', 'delete') like '%delete%'
  loop
    continue when part.keep_ms < 0 and part.keep_bytes < 0;
    part_id := part.part_id;
    new_start := part.log_start_offset;
    room := part.size;
    <<spans>>
    for span in
      select f.*, s.closed_at from kafka.spans_from(part.part_id, part.log_start_offset) as f
      join kafka.segments as s on s.id = f.segment_id order by f.start
    loop
      for batch in
        select b.last_offset, b.size,
          -- A batch without times is as old as its segment.
          case when b.max_ts >= 0 then b.max_ts else (extract(epoch from span.closed_at) * 1000)::bigint end as ts
        from kafka.batches as b
        where b.segment_id = span.segment_id and b.part_id = part.part_id
          and b.last_offset >= part.log_start_offset and b.last_offset < span.stop
        order by b.last_offset
      loop
        exit spans when not coalesce(
          (part.keep_ms >= 0 and batch.ts < now_ms - part.keep_ms)
          or (part.keep_bytes >= 0 and room - batch.size >= part.keep_bytes), false);
        new_start := batch.last_offset + 1;
        room := room - batch.size;
      end loop;
    end loop;
    if new_start > part.log_start_offset then
      return next;
    end if;
  end loop;
end $$;

-- Classes whose open segment is full, or has been open for long enough. An empty one stays.
create function kafka.full_classes(full_bytes bigint, least_s double precision)
returns table (class_id int) language plpgsql stable as $$
declare
  class record;
  is_used boolean;
begin
  for class in
    select c.id, c.segment_id, c.retention_ms, s.opened_at
    from kafka.classes as c join kafka.segments as s on s.id = c.segment_id
  loop
    select exists (select from kafka.spans as s where s.segment_id = class.segment_id) into is_used;
    if is_used and (
      pg_total_relation_size(format('kafka.segment_%s', class.segment_id)) >= full_bytes
      or class.retention_ms is not null
        and extract(epoch from clock_timestamp() - class.opened_at) >= greatest(class.retention_ms / 8000.0, least_s))
    then
      class_id := class.id;
      return next;
    end if;
  end loop;
end $$;

-- Spans of which nothing is alive, nor will be: those of deleted partitions, and those that end before the beginning.
create function kafka.dead_spans()
returns table (part_id int, first_offset bigint, segment_id int, stop bigint) language sql stable as $$
  select s.part_id, s.first_offset, s.segment_id, s.stop
  from (
    select s.*, lead(s.first_offset) over (partition by s.part_id order by s.first_offset) as stop
    from kafka.spans as s
  ) as s
  left join kafka.partitions as p on p.part_id = s.part_id
  where p.part_id is null or s.stop <= p.log_start_offset
    or p.log_start_offset = p.next_offset and s.stop is null and s.segment_id in (
      select id from kafka.segments where closed_at is not null)
$$;

-- Forgets a dead span. Where segments are not dropped for their age its rows are deleted, too.
create function kafka.bury(of_part int, first bigint, of_segment int, stop bigint) returns void language plpgsql as $$
declare
  records bigint := coalesce(stop, (select p.next_offset from kafka.partitions as p where p.part_id = of_part)) - first;
begin
  if exists (
    select from kafka.segments as s join kafka.classes as c on c.id = s.class_id
    where s.id = of_segment and c.retention_ms is null)
  then
    delete from kafka.batches as b
    where b.segment_id = of_segment and b.part_id = of_part and b.last_offset >= first
      and b.last_offset < coalesce(stop, 9223372036854775807);
  end if;
  perform from kafka.head for update;
  -- The next batch of the partition opens a span again, even if it goes to the same segment.
  update kafka.partitions as p set segment_id = null
    where p.part_id = of_part and stop is null and p.segment_id = of_segment and p.log_start_offset = p.next_offset;
  if found or stop is not null or not exists (select from kafka.partitions as p where p.part_id = of_part) then
    delete from kafka.spans as s where s.part_id = of_part and s.first_offset = first;
    update kafka.segments as s set buried = s.buried + greatest(records, 0) where s.id = of_segment;
  end if;
end $$;

-- Takes the leftovers of a compacted batch, or of none, for what it was. Returns how many bytes that saves.
create function kafka.replace_batch(of_part int, of_last bigint, batch kafka.incoming, new_base bigint, deltas int[])
returns bigint language plpgsql as $$
declare
  span record;
  old record;
begin
  select * into span from kafka.spans_from(of_part, of_last) order by start limit 1;
  select b.size, b.n into old from kafka.batches as b
    where b.segment_id = span.segment_id and b.part_id = of_part and b.last_offset = of_last;
  if batch is null then
    delete from kafka.batches as b
      where b.segment_id = span.segment_id and b.part_id = of_part and b.last_offset = of_last;
    update kafka.segments as s set compacted = s.compacted + old.n where s.id = span.segment_id;
    return old.size;
  end if;
  update kafka.batches as b set
    base_global = b.base_global + new_base - b.base_offset, base_offset = new_base,
    base_ts = batch.base_ts, max_ts = batch.max_ts, n = batch.n, size = batch.size, key_at = batch.key_at,
    value_len = batch.value_len, key_len = batch.key_len, ts_delta = batch.ts_delta, ts_far = batch.ts_far,
    off_delta = deltas, data = batch.data, plain = batch.plain
  where b.segment_id = span.segment_id and b.part_id = of_part and b.last_offset = of_last;
  update kafka.segments as s set compacted = s.compacted + old.n - batch.n where s.id = span.segment_id;
  return old.size - batch.size;
end $$;

-- Spans that compaction has emptied. The newest one stays: it says where the partition goes on.
create function kafka.drop_empty_spans(of_part int) returns void language plpgsql as $$
begin
  perform from kafka.head for update;
  delete from kafka.spans as s using kafka.spans_from(of_part, 0) as f
  where s.part_id = of_part and s.first_offset = f.start and f.stop < 9223372036854775807 and not exists (
    select from kafka.batches as b where b.segment_id = f.segment_id and b.part_id = of_part
      and b.last_offset >= f.start and b.last_offset < f.stop);
end $$;

-- Closed segments of which little is alive, and which will not soon be dropped for their age: three quarters are dead,
-- and half of what the last time left. So each record is copied less than once, on average.
create function kafka.sparse_segments() returns table (segment_id int, share double precision) language sql stable as $$
  select s.id, shares.share
  from (
    select x.segment_id, (sum(least(greatest(x.log_start_offset - x.first_offset, 0), x.stop - x.first_offset))
      + max(g.buried) + max(g.compacted))::double precision
      / nullif(sum(x.stop - x.first_offset) + max(g.buried), 0) as share
    from (
      select s.segment_id, s.first_offset, p.log_start_offset,
        lead(s.first_offset, 1, p.next_offset) over (partition by s.part_id order by s.first_offset) as stop
      from kafka.spans as s join kafka.partitions as p on p.part_id = s.part_id
    ) as x
    join kafka.segments as g on g.id = x.segment_id
    group by x.segment_id
  ) as shares
  join kafka.segments as s on s.id = shares.segment_id
  join kafka.classes as c on c.id = s.class_id
  where s.closed_at is not null and shares.share >= greatest(0.75, (1 + s.thinned) / 2)
    and (c.retention_ms is null or extract(epoch from now() - s.opened_at) * 1000 < c.retention_ms)
$$;

-- Deletes what is dead in a segment and notes how much of it was. The space comes back when the table is rewritten.
create function kafka.thin(of_segment int, new_share double precision) returns void language sql as $$
  delete from kafka.batches as b
  where b.segment_id = of_segment and not exists (
    select from kafka.partitions as p where p.part_id = b.part_id and p.log_start_offset <= b.last_offset);
  update kafka.segments set thinned = new_share where id = of_segment;
$$;
