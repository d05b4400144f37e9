-- Transactions of Kafka's producers.
--
-- Everything that a transaction changes, it changes under the lock of `kafka.head`, as appends do: its partitions, its
-- offsets, its end. So an end is one commit: markers in all partitions, offsets of groups, and the state of the
-- producer are there together or not at all, and no gateway has to finish what another has begun.
--
-- What a reader must know of open transactions is in rows that each append changes anyway: `kafka.states` has, for a
-- partition, who writes to it in a transaction and from which offset on. The smallest, which is the first, is where
-- readers of committed messages stop: the last stable offset. No index has to be searched for it that is full of
-- transactions that are over. In row 0 are all open transactions with their numbers.

alter table kafka.states
  add column open_producers bigint[] not null default '{}',
  add column open_offsets bigint[] not null default '{}';   -- rise; in row 0 numbers of transactions

create sequence kafka.transaction_numbers;

-- One row for each transactional id, with a version as the last part of its key, as in `kafka.states`.
create table kafka.transactional_ids (
  transactional_id text collate "C" not null,
  version bigint not null default 0,
  producer_id bigint not null,
  epoch int not null,
  last_producer_id bigint not null default -1,  -- what the producer had before, in case it did not hear of the change
  last_epoch int not null default -1,
  timeout_ms int not null,
  state text not null,                       -- Empty, Ongoing, CompleteCommit or CompleteAbort
  is_implicit boolean not null default false, -- the producer adds partitions by writing to them
  number bigint not null default -1,         -- of the transaction, the last if none is open
  started_at timestamptz,
  changed_at timestamptz not null default clock_timestamp(),
  parts int[] not null default '{}',
  groups text[] not null default '{}',
  primary key (transactional_id, version)
);
create index on kafka.transactional_ids (producer_id, version);

-- Offsets that groups will have when a transaction commits. By its number, which rises: nobody passes over old ones.
create table kafka.pending_offsets (
  number bigint not null,
  group_id text collate "C" not null,
  topic_id int not null,
  partition int not null,
  committed_offset bigint not null,
  leader_epoch int not null,
  metadata bytea not null,
  primary key (number, group_id, topic_id, partition)
);

-- What was aborted in a partition: from the producer's first message to the marker. `stable_offset` is where readers of
-- committed messages stopped afterwards: later rows are about what lies behind it.
create table kafka.aborted (
  part_id int not null,
  producer_id bigint not null,
  first_offset bigint not null,
  last_offset bigint not null,
  stable_offset bigint not null,
  primary key (part_id, last_offset)
);
create index on kafka.aborted (part_id, producer_id, last_offset);

-- Whoever could read messages can.
do $$
declare
  given record;
begin
  for given in
    select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as grantee
    from pg_class as c cross join lateral aclexplode(c.relacl) as a
    where c.oid = 'kafka.batches'::regclass and a.grantee <> c.relowner and a.privilege_type = 'SELECT'
  loop
    execute format('grant select on kafka.aborted to %s', given.grantee);
  end loop;
end $$;

-- Gateways that do not know of transactions would serve what is not committed. So transactions begin when none is left:
-- one that says no protocol has 0.
alter table kafka.brokers add column protocol int not null default 0;

create function kafka.broker_join(at_host text, at_port int, as_instance uuid, ttl interval, speaks int) returns int
language plpgsql as $$
declare
  joined int;
begin
  delete from kafka.brokers where expires_at < now() - interval '1 day' and (host, port) <> (at_host, at_port);
  insert into kafka.brokers as b (host, port, instance, expires_at, protocol)
  values (at_host, at_port, as_instance, now() + ttl, speaks)
  on conflict (host, port) do update set
    instance = excluded.instance, expires_at = excluded.expires_at, started_at = now(), protocol = excluded.protocol
  returning node_id into joined;
  perform pg_notify('kafka_brokers', '');
  return joined;
end $$;

create or replace function kafka.broker_join(at_host text, at_port int, as_instance uuid, ttl interval) returns int
language plpgsql as $$
begin
  return kafka.broker_join(at_host, at_port, as_instance, ttl, 0);
end $$;

create function kafka.broker_beat(of_node int, as_instance uuid, ttl interval, speaks int) returns boolean
language sql as $$
  with beat as (
    update kafka.brokers set expires_at = now() + ttl, instance = as_instance, protocol = speaks
    where node_id = of_node and (instance = as_instance or expires_at < now())
    returning 1)
  select exists (select from beat);
$$;

create or replace function kafka.broker_beat(of_node int, as_instance uuid, ttl interval) returns boolean
language sql as $$
  select kafka.broker_beat(of_node, as_instance, ttl, 0);
$$;

create or replace view kafka.partitions as
select part.part_id, part.topic_id, part.index, part.class_id, state.segment_id, state.log_start_offset,
  state.next_offset, state.run_max_ts, state.size, state.compacted_to, state.compact_next,
  greatest(coalesce(state.open_offsets[1], state.next_offset), state.log_start_offset) as last_stable_offset
from kafka.parts as part
cross join lateral (
  select * from kafka.states as s where (s.part_id, s.version) <= (part.part_id, 9223372036854775807)
  order by s.part_id desc, s.version desc limit 1) as state
where state.part_id = part.part_id;

alter type kafka.appended add attribute last_stable_offset bigint;

-- As before, and notes which producers' transactions have come to a partition. Markers are nobody's next batch.
create or replace function kafka.place(incoming kafka.incoming[]) returns setof kafka.appended language plpgsql as $$
declare
  whole record;
begin
  -- Not its arrays, which may be long.
  select s.version, s.next_offset into whole from kafka.states as s
    where (s.part_id, s.version) <= (0, 9223372036854775807) order by s.part_id desc, s.version desc limit 1;
  return query
  with arriving as materialized (
    select * from rows from (unnest(incoming)) with ordinality as batch
  ), targets as materialized (
    select part.part_id, class.segment_id, state.segment_id as segment_before, state.version, state.log_start_offset,
      state.next_offset, state.run_max_ts, state.open_producers, state.open_offsets[1] as first_open
    from (select distinct a.part_id from arriving as a) as wanted
    join kafka.parts as part using (part_id)
    join kafka.classes as class on class.id = part.class_id
    cross join lateral (
      select * from kafka.states as s where (s.part_id, s.version) <= (part.part_id, 9223372036854775807)
      order by s.part_id desc, s.version desc limit 1) as state
    where state.part_id = part.part_id
  ), placed as materialized (
    select batch.*, target.segment_id, target.segment_before, target.version, target.log_start_offset,
      target.open_producers, target.first_open,
      target.next_offset + sum(batch.n) over of_part - batch.n as base_offset,
      whole.next_offset + sum(batch.n) over of_all - batch.n as base_global,
      greatest(target.run_max_ts, max(batch.max_ts) over of_part) as run_max_ts
    from arriving as batch
    join targets as target using (part_id)
    window of_part as (partition by batch.part_id order by batch.ordinality),
      of_all as (order by batch.ordinality)
  ), opened as materialized (
    select o.part_id, array_agg(o.producer_id order by o.first_offset) as producers,
      array_agg(o.first_offset order by o.first_offset) as offsets
    from (
      select p.part_id, p.producer_id, min(p.base_offset)::bigint as first_offset from placed as p
      where p.attrs & 48 = 16 and p.producer_id <> all (p.open_producers) group by p.part_id, p.producer_id
    ) as o
    group by o.part_id
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
      segment_id = sums.segment_id,
      -- An array that stays as it is costs nothing, however long.
      open_producers = case when sums.producers is null then state.open_producers
        else state.open_producers || sums.producers end,
      open_offsets = case when sums.offsets is null then state.open_offsets
        else state.open_offsets || sums.offsets end
    from (
      select p.part_id, min(p.version) as version, sum(p.n) as n, max(p.run_max_ts) as run_max_ts, sum(p.size) as size,
        min(p.segment_id) as segment_id, (select o.producers from opened as o where o.part_id = p.part_id) as producers,
        (select o.offsets from opened as o where o.part_id = p.part_id) as offsets
      from placed as p group by p.part_id
      union all
      select 0, whole.version, coalesce(sum(p.n), 0), -1, 0, null, null::bigint[], null::bigint[] from placed as p
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
    from placed as p where p.producer_id >= 0 and p.attrs & 32 = 0
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
    coalesce(p.base_offset, -1)::bigint, coalesce(p.log_start_offset, -1), coalesce(p.base_global, -1)::bigint,
    greatest(coalesce(p.first_open, (select o.offsets[1] from opened as o where o.part_id = p.part_id),
      max(p.base_offset + p.n) over (partition by p.part_id), -1), p.log_start_offset)::bigint
  from arriving as a left join placed as p using (ordinality)
  order by 1;
end $$;

create or replace function kafka.append(incoming kafka.incoming[], has_producers boolean, durable boolean)
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
        coalesce(max(log_start_offset), -1), -1, coalesce(max(last_stable_offset), -1)
        into row from kafka.partitions where part_id = incoming[i].part_id;
    end if;
    row.ord := i;
    return next row;
  end loop;
end $$;
alter function kafka.append(kafka.incoming[], boolean, boolean) set plan_cache_mode = force_generic_plan;

-- The state of a transactional id. Null if there is none.
create function kafka.transaction_of(of_id text) returns kafka.transactional_ids language plpgsql stable as $$
declare
  row kafka.transactional_ids;
begin
  select * into row from kafka.transactional_ids as t
    where (t.transactional_id, t.version) <= (of_id, 9223372036854775807)
    order by t.transactional_id desc, t.version desc limit 1;
  return case when row.transactional_id = of_id then row end;
end $$;
alter function kafka.transaction_of(text) set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off;

-- All open transactions, oldest first.
create function kafka.open_transactions() returns table (producer_id bigint, number bigint)
language plpgsql stable rows 10 as $$
#variable_conflict use_column
begin
  return query select o.producer_id, o.number
  from (
    select * from kafka.states as s where (s.part_id, s.version) <= (0, 9223372036854775807)
    order by s.part_id desc, s.version desc limit 1
  ) as whole
  cross join lateral unnest(whole.open_producers, whole.open_offsets) as o(producer_id, number);
end $$;

-- What Kafka says to a producer that writes in a transaction: 0 it may, 47 it is of an old epoch, 48 the transaction
-- does not have these partitions or groups, 49 this id is another producer's. The caller holds the lock of `head`.
create function kafka.transaction_error(of_id text, of_producer bigint, of_epoch int, with_parts int[],
  with_groups text[], may_join boolean) returns smallint language plpgsql stable as $$
declare
  row kafka.transactional_ids := kafka.transaction_of(of_id);
begin
  if row.producer_id is distinct from of_producer then
    return case when row.last_producer_id = of_producer then 47 else 49 end;
  elsif row.epoch <> of_epoch then
    return 47;
  elsif row.state = 'Ongoing' and with_parts <@ row.parts and with_groups <@ row.groups then
    return 0;
  end if;
  return case when may_join and row.is_implicit then 0 else 48 end;
end $$;

-- Adds to the open transaction, or begins one. The caller holds the lock of `head` and has checked the rest.
create function kafka.join_transaction(of_id text, with_parts int[], with_groups text[]) returns void
language plpgsql as $$
declare
  row kafka.transactional_ids := kafka.transaction_of(of_id);
begin
  if row.state = 'Ongoing' then
    update kafka.transactional_ids as t set version = t.version + 1,
      parts = t.parts || array(select p from unnest(with_parts) as p where p <> all (t.parts)),
      groups = t.groups || array(select g from unnest(with_groups) as g where g <> all (t.groups))
    where t.transactional_id = of_id and t.version = row.version
      and not (with_parts <@ t.parts and with_groups <@ t.groups);
    return;
  end if;
  update kafka.transactional_ids as t set version = t.version + 1, state = 'Ongoing',
    number = nextval('kafka.transaction_numbers'), started_at = clock_timestamp(), changed_at = clock_timestamp(),
    parts = with_parts, groups = with_groups
  where t.transactional_id = of_id and t.version = row.version returning t.number into row.number;
  update kafka.states as s set version = s.version + 1, open_producers = s.open_producers || row.producer_id,
    open_offsets = s.open_offsets || row.number
  where s.part_id = 0 and s.version = (
    select w.version from kafka.states as w where (w.part_id, w.version) <= (0, 9223372036854775807)
    order by w.part_id desc, w.version desc limit 1);
end $$;

-- As `kafka.append`, for batches of which some belong to transactions: `ids` has their transactional ids, and
-- `may_join` whether they may add their partition. A duplicate is one, whatever became of its transaction.
create function kafka.append_transactional(incoming kafka.incoming[], ids text[], may_join boolean[], durable boolean)
returns setof kafka.appended language plpgsql as $$
declare
  i int;
  writer record;
  verdict record;
  row kafka.appended;
  is_fine boolean := true;
begin
  perform from kafka.head for update;
  if not durable then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  for writer in
    select b.id, b.producer_id, b.epoch, bool_and(b.may_join) as may_join, array_agg(distinct b.part_id) as parts
    from (
      select i.producer_id, i.epoch, i.part_id, o.id, o.may_join
      from rows from (unnest(incoming)) with ordinality as i
      join unnest(ids, may_join) with ordinality as o(id, may_join, ordinality) using (ordinality)
      where o.id is not null
    ) as b
    group by b.id, b.producer_id, b.epoch
  loop
    is_fine := is_fine
      and kafka.transaction_error(writer.id, writer.producer_id, writer.epoch, writer.parts, '{}', writer.may_join) = 0;
  end loop;
  if is_fine and kafka.in_sequence(incoming) then
    for i in 1 .. cardinality(incoming) loop
      if ids[i] is not null and may_join[i] then
        perform kafka.join_transaction(ids[i], array[incoming[i].part_id], '{}');
      end if;
    end loop;
    return query select * from kafka.place(incoming);
    return;
  end if;
  for i in 1 .. cardinality(incoming) loop
    select * into verdict from kafka.sequence_error(incoming[i]) where incoming[i].producer_id >= 0;
    if ids[i] is not null and verdict.error <> 46 then
      row.error := kafka.transaction_error(
        ids[i], incoming[i].producer_id, incoming[i].epoch, array[incoming[i].part_id], '{}', may_join[i]);
      verdict.error := case when row.error = 0 then verdict.error else row.error end;
    end if;
    if verdict.error is null or verdict.error = 0 then
      if ids[i] is not null and may_join[i] then
        perform kafka.join_transaction(ids[i], array[incoming[i].part_id], '{}');
      end if;
      select * into row from kafka.place(incoming[i:i]);
    else
      select i, case verdict.error when 46 then 0 else verdict.error end, verdict.original,
        coalesce(max(log_start_offset), -1), -1, coalesce(max(last_stable_offset), -1)
        into row from kafka.partitions where part_id = incoming[i].part_id;
    end if;
    row.ord := i;
    return next row;
  end loop;
end $$;
alter function kafka.append_transactional(kafka.incoming[], text[], boolean[], boolean)
  set plan_cache_mode = force_generic_plan;

-- Adds to a transaction what its producer has announced, if its state is still the one of this version.
create function kafka.extend_transaction(of_id text, seen bigint, with_parts int[], with_groups text[])
returns boolean language plpgsql as $$
begin
  perform from kafka.head for update;
  if (kafka.transaction_of(of_id)).version is distinct from seen then
    return false;
  end if;
  perform kafka.join_transaction(of_id, with_parts, with_groups);
  return true;
end $$;

-- Changes a transactional id that has no open transaction, or makes one (version -1), if nobody else has meanwhile.
create function kafka.change_transaction(of_id text, seen bigint, new_state text, new_producer bigint, new_epoch int,
  new_last_producer bigint, new_last_epoch int, new_timeout_ms int, new_implicit boolean)
returns boolean language plpgsql as $$
declare
  row kafka.transactional_ids;
begin
  perform from kafka.head for update;
  row := kafka.transaction_of(of_id);
  if coalesce(row.version, -1) <> seen or row.state = 'Ongoing' then
    return false;
  elsif seen = -1 then
    insert into kafka.transactional_ids (transactional_id, producer_id, epoch, timeout_ms, state, is_implicit)
      values (of_id, new_producer, new_epoch, new_timeout_ms, new_state, new_implicit);
  else
    update kafka.transactional_ids as t set version = t.version + 1, state = new_state, producer_id = new_producer,
      epoch = new_epoch, last_producer_id = new_last_producer, last_epoch = new_last_epoch,
      timeout_ms = new_timeout_ms, is_implicit = new_implicit, changed_at = clock_timestamp(), parts = '{}',
      groups = '{}'
    where t.transactional_id = of_id and t.version = seen;
  end if;
  return true;
end $$;

-- Ends the open transaction of an id, all of it at once, if its state is still the one of this version. The marker is a
-- batch for any partition. Returns a row for each partition, and first one without any that says that it was done.
create function kafka.end_transaction(of_id text, seen bigint, is_commit boolean, marker kafka.incoming[],
  new_state text, new_producer bigint, new_epoch int, new_last_producer bigint, new_last_epoch int,
  new_timeout_ms int, new_implicit boolean)
returns table (part_id int, base_offset bigint, log_start_offset bigint, last_stable_offset bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  row kafka.transactional_ids;
  batch kafka.incoming := marker[1];
  markers kafka.incoming[] := '{}';
  target int;
  placed record;
  state kafka.states;
  at int;
begin
  perform from kafka.head for update;
  row := kafka.transaction_of(of_id);
  if row.version is distinct from seen or row.state <> 'Ongoing' then
    return;
  end if;
  return next;
  for target in select p.part_id from kafka.parts as p where p.part_id = any (row.parts) order by 1 loop
    batch.part_id := target;
    markers := markers || batch;
  end loop;
  for placed in select * from kafka.place(markers) loop
    target := markers[placed.ord].part_id;
    select * into state from kafka.states as s where (s.part_id, s.version) <= (target, 9223372036854775807)
      order by s.part_id desc, s.version desc limit 1;
    part_id := target;
    base_offset := placed.base_offset;
    log_start_offset := state.log_start_offset;
    last_stable_offset := kafka.close_in(state, row.producer_id, is_commit, placed.base_offset);
    return next;
  end loop;
  select * into state from kafka.states as s where (s.part_id, s.version) <= (0, 9223372036854775807)
    order by s.part_id desc, s.version desc limit 1;
  at := array_position(state.open_offsets, row.number);
  update kafka.states as s set version = s.version + 1,
    open_producers = state.open_producers[:at - 1] || state.open_producers[at + 1:],
    open_offsets = state.open_offsets[:at - 1] || state.open_offsets[at + 1:]
  where s.part_id = 0 and s.version = state.version;
  perform kafka.settle_offsets(row.number, is_commit);
  update kafka.transactional_ids as t set version = t.version + 1, state = new_state, producer_id = new_producer,
    epoch = new_epoch, last_producer_id = new_last_producer, last_epoch = new_last_epoch, timeout_ms = new_timeout_ms,
    is_implicit = new_implicit, changed_at = clock_timestamp(), parts = '{}', groups = '{}'
  where t.transactional_id = of_id and t.version = seen;
end $$;
alter function kafka.end_transaction(
  text, bigint, boolean, kafka.incoming[], text, bigint, int, bigint, int, int, boolean)
  set plan_cache_mode = force_generic_plan;

-- A producer's transaction is over in a partition; its marker lies there already. Returns the last stable offset.
create function kafka.close_in(state kafka.states, of_producer bigint, is_commit boolean, marker_offset bigint)
returns bigint language plpgsql as $$
declare
  place int := array_position(state.open_producers, of_producer);
  stable_offset bigint;
begin
  if place is null then  -- it has announced the partition and not written to it
    return greatest(coalesce(state.open_offsets[1], state.next_offset), state.log_start_offset);
  end if;
  update kafka.states as s set version = s.version + 1,
    open_producers = s.open_producers[:place - 1] || s.open_producers[place + 1:],
    open_offsets = s.open_offsets[:place - 1] || s.open_offsets[place + 1:]
  where s.part_id = state.part_id and s.version = state.version
  returning greatest(coalesce(s.open_offsets[1], s.next_offset), s.log_start_offset) into stable_offset;
  if not is_commit then
    insert into kafka.aborted (part_id, producer_id, first_offset, last_offset, stable_offset)
      values (state.part_id, of_producer, state.open_offsets[place], marker_offset, stable_offset);
  end if;
  return stable_offset;
end $$;

-- The offsets of a transaction become those of their groups, or go. Groups and topics may be gone by then.
create function kafka.settle_offsets(of_number bigint, is_commit boolean) returns void language plpgsql as $$
begin
  -- In one order everywhere, so that nobody waits for who waits for him.
  perform from kafka.pending_offsets as p where p.number = of_number
    order by p.group_id, p.topic_id, p.partition for update;
  if is_commit then
    insert into kafka.group_offsets as o (group_id, topic_id, partition, committed_offset, leader_epoch, metadata)
    select p.group_id, p.topic_id, p.partition, p.committed_offset, p.leader_epoch, p.metadata
    from kafka.pending_offsets as p
    where p.number = of_number and exists (select from kafka.groups as g where g.group_id = p.group_id)
      and exists (select from kafka.topics as t where t.id = p.topic_id)
    order by p.group_id, p.topic_id, p.partition
    on conflict (group_id, topic_id, partition) do update set
      committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch,
      metadata = excluded.metadata, committed_at = clock_timestamp();
  end if;
  delete from kafka.pending_offsets as p where p.number = of_number;
end $$;

-- Offsets of a group for when a transaction commits. The caller proves that it coordinates the group. Kafka's code.
create function kafka.pend_offsets(of_id text, of_producer bigint, of_epoch int, of_group text, lease_epoch bigint,
  may_join boolean, topic_ids int[], partitions int[], offsets bigint[], leader_epochs int[], metadata bytea[])
returns smallint language plpgsql as $$
#variable_conflict use_variable
declare
  error smallint;
  open_number bigint;
begin
  -- Always before the lock of the log: whoever deletes groups holds leases for longer than that may be held.
  perform from kafka.group_leases as l where l.group_id = of_group and l.epoch = lease_epoch for share;
  if not found then
    return 16;
  end if;
  perform from kafka.head for update;
  error := kafka.transaction_error(of_id, of_producer, of_epoch, '{}', array[of_group], may_join);
  if error <> 0 then
    return error;
  end if;
  perform kafka.join_transaction(of_id, '{}', array[of_group]);
  open_number := (kafka.transaction_of(of_id)).number;
  insert into kafka.pending_offsets (number, group_id, topic_id, partition, committed_offset, leader_epoch, metadata)
  select open_number, of_group, o.* from unnest(topic_ids, partitions, offsets, leader_epochs, metadata) as o
  order by 3, 4
  on conflict on constraint pending_offsets_pkey do update set
    committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata;
  return 0;
end $$;

-- Transactions that have been open for longer than their producers have asked for.
create function kafka.overdue_transactions() returns table (transactional_id text, version bigint)
language plpgsql stable as $$
#variable_conflict use_column
declare
  open record;
  row kafka.transactional_ids;
begin
  for open in select * from kafka.open_transactions() loop
    select * into row from kafka.transactional_ids as t
      where (t.producer_id, t.version) <= (open.producer_id, 9223372036854775807)
      order by t.producer_id desc, t.version desc limit 1;
    if (row.producer_id, row.number, row.state) = (open.producer_id, open.number, 'Ongoing')
      and row.started_at + row.timeout_ms * interval '1 millisecond' < clock_timestamp()
    then
      transactional_id := row.transactional_id;
      version := row.version;
      return next;
    end if;
  end loop;
end $$;
alter function kafka.overdue_transactions() set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off;

-- As people see them.
create view kafka.transactions as
select t.transactional_id, t.state, t.producer_id, t.epoch,
  case when t.state = 'Ongoing' then t.started_at end as started_at,
  t.timeout_ms * interval '1 millisecond' as timeout,
  array(
    select n.name || '/' || p.index from kafka.parts as p join kafka.topics as n on n.id = p.topic_id
    where p.part_id = any (t.parts) order by n.name, p.index) as partitions,
  t.groups, t.changed_at
from kafka.transactional_ids as t;

-- Reading

-- Every message that is committed: not those of open transactions, nor what lies behind their beginning, nor those that
-- were aborted.
create or replace view kafka.messages as
select topics.name as topic, parts.index as partition, r."offset", r.global_offset, r.key, r.value, r.headers,
  r."timestamp"
from kafka.topics as topics
join kafka.partitions as parts on parts.topic_id = topics.id
cross join lateral (
  select b.*, case when attrs & 8 <> 0 then max_ts end as append_ts,
    coalesce(b.plain, substring(b.data from 62)) as bytes
  from kafka.batches as b
  where b.part_id = parts.part_id and b.last_offset >= parts.log_start_offset
    and b.last_offset < parts.last_stable_offset and attrs & 32 = 0
    and (attrs & 16 = 0 or not coalesce((
      select a.first_offset <= b.base_offset from kafka.aborted as a
      where a.part_id = b.part_id and a.producer_id = b.producer_id and a.last_offset > b.last_offset
      order by a.last_offset limit 1), false))
  offset 0
) as b
cross join lateral kafka.records(b.base_offset, b.base_global, b.base_ts, b.append_ts, b.key_at, b.value_len, b.key_len,
  b.ts_delta, b.ts_far, b.off_delta, b.bytes) as r
where r."offset" >= parts.log_start_offset;

create or replace function kafka.read(topic text, partition int, from_offset bigint, n int)
returns table ("offset" bigint, global_offset bigint, key bytea, value bytea, headers jsonb, "timestamp" timestamptz)
language plpgsql stable rows 100 as $$
#variable_conflict use_column
declare
  part kafka.partitions;
  span record;
  room int := n;
  got int;
begin
  select p.* into part from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
    where t.name = read.topic and p.index = read.partition;
  from_offset := greatest(from_offset, part.log_start_offset);
  for span in select * from kafka.spans_from(part.part_id, from_offset) loop
    exit when room <= 0;
    return query
    select r.* from (
      select b.*, case when attrs & 8 <> 0 then max_ts end as append_ts,
        coalesce(b.plain, substring(b.data from 62)) as bytes
      from kafka.batches as b
      where b.segment_id = span.segment_id and b.part_id = part.part_id
        and b.last_offset >= from_offset and b.last_offset < least(span.stop, part.last_stable_offset)
        and attrs & 32 = 0
        and (attrs & 16 = 0 or not coalesce((
          select a.first_offset <= b.base_offset from kafka.aborted as a
          where a.part_id = b.part_id and a.producer_id = b.producer_id and a.last_offset > b.last_offset
          order by a.last_offset limit 1), false))
      order by b.last_offset
      offset 0
    ) as b
    cross join lateral kafka.records(b.base_offset, b.base_global, b.base_ts, b.append_ts, b.key_at, b.value_len,
      b.key_len, b.ts_delta, b.ts_far, b.off_delta, b.bytes) as r
    where r."offset" >= from_offset
    limit room;
    get diagnostics got = row_count;
    room := room - got;
  end loop;
end $$;
alter function kafka.read(text, int, bigint, int) set enable_sort = off set enable_bitmapscan = off;

create or replace function kafka.newest_of(topic text, partition int, n int) returns setof kafka.message_of_topic
language plpgsql stable rows 10 as $$
#variable_conflict use_variable
declare
  part kafka.partitions;
  first bigint;
  back bigint := n;
begin
  select p.* into part from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
    where t.name = topic and p.index = partition;
  loop
    first := greatest(part.last_stable_offset - back, part.log_start_offset);
    exit when first <= part.log_start_offset
      or (select count(*) from kafka.read(topic, partition, first, n)) >= n;
    back := back * 4;
  end loop;
  return query select partition, r.* from kafka.read(topic, partition, first, least(back, 2147483647)::int) as r
    order by r."offset" desc limit n;
end $$;

-- Where whoever polls the partitions of a topic by global offsets must stop: what lies in one of them behind the
-- beginning of an open transaction becomes visible later, and would be missed.
create function kafka.stable_global(of_topic int) returns bigint language sql stable as $$
  select coalesce(min(f.base_global), 9223372036854775807) from kafka.partitions as p
  cross join lateral kafka.place_from(p.part_id, p.last_stable_offset) as f
  where p.topic_id = of_topic and p.last_stable_offset < p.next_offset
$$;

create or replace function kafka.after(topic text, global_offset bigint, n int default 1000)
returns setof kafka.message_of_topic language sql stable rows 1000 as $$
  select p.index, r.* from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
  cross join lateral (select kafka.stable_global(t.id) as global_offset offset 0) as stop
  cross join lateral kafka.read(t.name, p.index, kafka.offset_after(p.part_id, after.global_offset), after.n) as r
  where t.name = after.topic and r.global_offset < stop.global_offset
  order by r.global_offset limit after.n
$$;

-- As `kafka.fetch` was, and whether only what is committed is asked for. The row of the bounds comes first; where there
-- were batches of transactions among those for a reader of committed ones, a row follows with the aborted ones, as the
-- producers and the offsets where they begin.
create function kafka.fetch_from(part_ids int[], offsets bigint[], limits int[], total bigint, committed boolean[])
returns table (ord int, next_offset bigint, log_start_offset bigint, last_stable_offset bigint, base_offset bigint,
  last_offset bigint, data bytea, aborted_producers bigint[], aborted_offsets bigint[])
language plpgsql stable rows 100 as $$
#variable_conflict use_variable
declare
  want int;
  span record;
  batch record;
  room bigint;
  stop bigint;
  is_first boolean := true;
  has_transactions boolean;
begin
  for want in 1 .. cardinality(part_ids) loop
    ord := want;
    next_offset := null;
    log_start_offset := null;
    last_stable_offset := null;
    base_offset := null;
    last_offset := null;
    data := null;
    aborted_producers := null;
    aborted_offsets := null;
    select part.next_offset, part.log_start_offset, part.last_stable_offset
      into next_offset, log_start_offset, last_stable_offset
      from kafka.partitions as part where part.part_id = part_ids[want];
    return next;
    stop := case when committed[want] then last_stable_offset else next_offset end;
    continue when next_offset is null or offsets[want] < log_start_offset or offsets[want] >= stop;
    room := least(limits[want], total);
    has_transactions := false;
    <<spans>>
    for span in select * from kafka.spans_from(part_ids[want], offsets[want])
    loop
      for batch in
        select b.base_offset, b.last_offset, b.size, b.attrs, b.data from kafka.batches as b
        where b.segment_id = span.segment_id and b.part_id = part_ids[want]
          and b.last_offset >= offsets[want] and b.last_offset < span.stop
        order by b.last_offset
      loop
        exit spans when batch.base_offset >= stop or batch.size > room and not is_first;
        is_first := false;
        room := room - batch.size;
        total := total - batch.size;
        base_offset := batch.base_offset;
        last_offset := batch.last_offset;
        data := batch.data;
        has_transactions := has_transactions or batch.attrs & 16 <> 0;
        return next;
      end loop;
    end loop;
    if has_transactions and committed[want] then
      data := null;
      select a.producers, a.offsets into aborted_producers, aborted_offsets
        from kafka.aborted_among(part_ids[want], offsets[want], last_offset + 1) as a;
      return next;
    end if;
  end loop;
end $$;
alter function kafka.fetch_from(int[], bigint[], int[], bigint, boolean[]) set enable_sort = off set enable_bitmapscan = off;

-- The aborted transactions that have messages from an offset on and before another, as arrays; empty if there are none.
create function kafka.aborted_among(of_part int, first bigint, stop bigint, out producers bigint[], out offsets bigint[])
language plpgsql stable as $$
declare
  aborted record;
begin
  producers := '{}';
  offsets := '{}';
  for aborted in select * from kafka.aborted as a where a.part_id = of_part and a.last_offset >= first
    order by a.last_offset
  loop
    if aborted.first_offset < stop then
      producers := producers || aborted.producer_id;
      offsets := offsets || aborted.first_offset;
    end if;
    exit when aborted.stable_offset >= stop;  -- what ended later began behind it
  end loop;
end $$;
alter function kafka.aborted_among(int, bigint, bigint) set enable_sort = off set enable_bitmapscan = off;

-- Whoever reads through this knows nothing of transactions: refused as soon as there are some.
create or replace function kafka.fetch(part_ids int[], offsets bigint[], limits int[], total bigint)
returns table (ord int, next_offset bigint, log_start_offset bigint, base_offset bigint, last_offset bigint, data bytea)
language plpgsql stable rows 100 as $$
#variable_conflict use_column
begin
  if exists (select from kafka.transactional_ids) then
    raise exception 'this log has transactions, which the headgate that reads it does not know'
      using errcode = 'feature_not_supported', hint = 'Bring it up to the version of the others.';
  end if;
  return query select f.ord, f.next_offset, f.log_start_offset, f.base_offset, f.last_offset, f.data
    from kafka.fetch_from(part_ids, offsets, limits, total, array_fill(false, array[cardinality(part_ids)])) as f;
end $$;

-- Groups and topics that go

create or replace function kafka.delete_topic(gone int) returns void language plpgsql as $$
begin
  perform from kafka.head for update;
  delete from kafka.producers where part_id in (select part_id from kafka.partitions where topic_id = gone);
  delete from kafka.aborted where part_id in (select part_id from kafka.partitions where topic_id = gone);
  delete from kafka.partitions where topic_id = gone;
  delete from kafka.topics where id = gone;
end $$;

create or replace function kafka.delete_group(of_group text, with_epoch bigint) returns boolean language plpgsql as $$
begin
  delete from kafka.group_leases where group_id = of_group and epoch = with_epoch;
  if not found then
    return false;
  end if;
  perform from kafka.pending_offsets as p
    where p.number in (select o.number from kafka.open_transactions() as o) and p.group_id = of_group
    order by p.number, p.topic_id, p.partition for update;
  delete from kafka.pending_offsets as p
    where p.number in (select o.number from kafka.open_transactions() as o) and p.group_id = of_group;
  delete from kafka.group_offsets where group_id = of_group;
  delete from kafka.group_members where group_id = of_group;
  delete from kafka.groups where group_id = of_group;
  return true;
end $$;

-- As before, but for groups that an open transaction has offsets for.
create or replace function kafka.expire_groups(retention interval, grace interval) returns int language plpgsql as $$
declare
  candidate text;
  expired int := 0;
begin
  delete from kafka.group_offsets as o where not exists (select from kafka.topics as t where t.id = o.topic_id);
  for candidate in
    select group_id from kafka.groups where state = 'Empty' and changed_at < now() - least(retention, grace)
  loop
    perform from kafka.group_leases where group_id = candidate for update;
    -- Now that nobody can change it, look again.
    perform from kafka.groups
      where group_id = candidate and state = 'Empty' and changed_at < now() - least(retention, grace);
    continue when not found or exists (
      select from kafka.open_transactions() as o join kafka.pending_offsets as p using (number)
      where p.group_id = candidate);
    delete from kafka.group_offsets as o using kafka.groups as g
      where o.group_id = candidate and g.group_id = candidate and o.committed_at < now() - retention
      and g.changed_at < now() - retention;
    delete from kafka.groups as g where group_id = candidate and changed_at < now() - grace
      and not exists (select from kafka.group_offsets as o where o.group_id = candidate);
    if found then
      delete from kafka.group_leases where group_id = candidate;
      expired := expired + 1;
    end if;
  end loop;
  return expired;
end $$;
