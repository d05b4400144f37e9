-- Consumer groups: who coordinates them, who is in them, how far they have read.

-- Terms of coordinators. One sequence for all groups: a term is never given twice, not even after a group was deleted.
create sequence kafka.group_epochs;

-- A group has one coordinator: the gateway that holds its lease. Every write of the group's state and offsets checks
-- the epoch and locks the row for share, so that a lease never changes hands while a write is under way. A lease is
-- worth as much as its holder is alive in kafka.brokers.
create table kafka.group_leases (
  group_id text collate "C" primary key,
  node_id int not null,
  instance uuid not null,
  epoch bigint not null,
  claimed_at timestamptz not null default now()
);

-- `head` and `body` are what the coordinator keeps of a group and a member; nothing else reads them.
create table kafka.groups (
  group_id text collate "C" primary key,
  kind text not null,                        -- classic or consumer
  state text not null,
  protocol_type text not null,
  generation int not null,
  head json not null,
  changed_at timestamptz not null default now()  -- since when it is in this state
) with (fillfactor = 50);

create table kafka.group_members (
  group_id text collate "C" not null,
  member_id text collate "C" not null,
  instance_id text,
  client_id text not null,
  client_host text not null,
  body json not null,
  primary key (group_id, member_id)
) with (fillfactor = 50);

-- By the topic's id: a topic that is created again under an old name begins without offsets.
create table kafka.group_offsets (
  group_id text collate "C" not null,
  topic_id int not null,
  partition int not null,
  committed_offset bigint not null,
  leader_epoch int not null,
  metadata bytea not null,                   -- a text, but one that may contain what PostgreSQL's cannot
  committed_at timestamptz not null default now(),
  primary key (group_id, topic_id, partition)
) with (fillfactor = 50);

-- Forget a group and all that is known of it. False if the lease is another's by now.
create function kafka.delete_group(of_group text, with_epoch bigint) returns boolean language plpgsql as $$
begin
  delete from kafka.group_leases where group_id = of_group and epoch = with_epoch;
  if not found then
    return false;
  end if;
  delete from kafka.group_offsets where group_id = of_group;
  delete from kafka.group_members where group_id = of_group;
  delete from kafka.groups where group_id = of_group;
  return true;
end $$;

-- Forget offsets that nobody has used for long: those of groups that have been empty for `retention` and were committed
-- before that, and those of topics that are gone. An empty group without offsets goes after `grace`. Returns how many
-- groups have gone. Taking the lease away makes a coordinator that still has such a group in memory read it again.
create function kafka.expire_groups(retention interval, grace interval) returns int language plpgsql as $$
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
    continue when not found;
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

-- Leases that were taken for a group that never came to be, or is gone, and whose holder is gone, too.
create function kafka.expire_group_leases() returns void language sql as $$
  delete from kafka.group_leases as l
  where l.claimed_at < now() - interval '1 hour'
    and not exists (select from kafka.groups as g where g.group_id = l.group_id)
    and not exists (select from kafka.live_brokers as b where (b.node_id, b.instance) = (l.node_id, l.instance));
$$;

-- How far every group has read. `lag` counts what is still there to be read.
create view kafka.consumer_offsets as
select o.group_id, t.name as topic, o.partition, o.committed_offset, p.next_offset as end_offset,
  greatest(p.next_offset - greatest(o.committed_offset, p.log_start_offset), 0) as lag,
  case when position('\x00'::bytea in o.metadata) = 0 then convert_from(o.metadata, 'UTF8')
    else encode(o.metadata, 'escape') end as metadata,
  o.committed_at
from kafka.group_offsets as o
join kafka.topics as t on t.id = o.topic_id
join kafka.partitions as p on p.topic_id = o.topic_id and p.index = o.partition;

-- Every group, with its coordinator if that is alive. A rebalance that is under way does not show.
create view kafka.consumer_groups as
select g.group_id, g.kind, g.state, g.generation, g.protocol_type,
  (select count(*) from kafka.group_members as m where m.group_id = g.group_id) as members,
  (select coalesce(sum(o.lag), 0)::bigint from kafka.consumer_offsets as o where o.group_id = g.group_id) as lag,
  b.host || ':' || b.port as coordinator, g.changed_at
from kafka.groups as g
left join kafka.group_leases as l using (group_id)
left join kafka.live_brokers as b on (b.node_id, b.instance) = (l.node_id, l.instance);

-- How far one group is behind, partition by partition.
create function kafka.lag(of_group text)
returns table (topic text, partition int, committed_offset bigint, end_offset bigint, lag bigint)
language sql stable as $$
  select topic, partition, committed_offset, end_offset, lag from kafka.consumer_offsets
  where group_id = of_group order by topic, partition;
$$;
