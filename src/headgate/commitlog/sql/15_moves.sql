-- Topics and groups on their way to another cluster.
--
--   fenced   nobody appends any more, but who moves messages that were committed before: the inbox, a mirror
--   closed   nobody reads any more, either: the groups are moving
--   moved    clients are sent to the other cluster
--
-- The fence is where appends are: whoever commits under the lock of `head` after it sees it. Gateways know of it from
-- the catalogue, and tell their clients to try again.

-- Whoever may produce sees why he may not now.
alter table kafka.topics add column move_state text check (move_state in ('fenced', 'closed', 'moved'));
alter table kafka.parts add column is_fenced boolean not null default false;

-- One row for each topic with a state.
create table kafka.moves (
  topic_id int primary key,
  link text not null,                        -- of kafka.shadow_links
  target jsonb,                              -- where clients find it once it has moved, as the other cluster said
  changed_at timestamptz not null default now()
);

-- Their coordinator in the other cluster; null while their offsets are on the way.
create table kafka.moved_groups (
  group_id text collate "C" primary key,
  link text not null,
  node_id int,
  host text,
  port int,
  members int not null default 0,            -- how many it had here
  changed_at timestamptz not null default now(),
  check ((node_id is null) = (host is null) and (host is null) = (port is null))
);

-- `kafka.place` as it was, but for partitions that are fenced: of what arrives, only the ends of transactions get in. Its
-- text is long, and the rest of it stays.
do $$
declare
  known text := pg_get_functiondef('kafka.place(kafka.incoming[])'::regprocedure);
  wanted text;
  change record;
begin
  wanted := known;
  for change in select * from (values
    ('select part.part_id, class.segment_id,', 'select part.part_id, part.is_fenced, class.segment_id,'),
    ('    window of_part as (partition by', '    where not target.is_fenced or batch.attrs & 32 = 32 or current_setting(''kafka.passes'', true) = ''on''
    window of_part as (partition by'),
    ('(case when p.part_id is null then 3 else 0 end)::smallint', '(case when p.part_id is not null then 0
      when exists (select from kafka.parts as part where part.part_id = a.part_id and part.is_fenced) then 6
      else 3 end)::smallint')) as c(old, new)
  loop
    assert position(change.old in wanted) > 0, 'kafka.place is not the one that this migration was written for';
    wanted := replace(wanted, change.old, change.new);
  end loop;
  execute wanted;
end $$;

-- Brings topics to a state, or back (null). Returns how many there are.
create function kafka.move_topics(of_link text, topics text[], new_state text, new_targets jsonb default '{}')
returns int language plpgsql as $$
declare
  ids int[];
begin
  perform from kafka.catalog for update;
  select array_agg(t.id) into ids from kafka.topics as t where t.name = any (topics);
  perform from kafka.head for update;  -- who appends now has committed before the fence stands
  if exists (select from kafka.moves as m where m.topic_id = any (ids) and m.link <> of_link) then
    raise exception 'another link moves one of these topics' using errcode = 'object_in_use';
  end if;
  update kafka.topics as t set move_state = new_state where t.id = any (ids);
  update kafka.parts as p set is_fenced = new_state is not null
    where p.topic_id = any (ids) and p.is_fenced is distinct from (new_state is not null);
  if new_state is null then
    delete from kafka.moves where topic_id = any (ids);
  else
    insert into kafka.moves as m (topic_id, link, target)
      select t.id, of_link, new_targets -> t.name from kafka.topics as t where t.id = any (ids)
      on conflict (topic_id) do update set target = coalesce(excluded.target, m.target), changed_at = now();
  end if;
  update kafka.catalog set version = version + 1;
  perform pg_notify('kafka_catalog', '');
  return coalesce(cardinality(ids), 0);
end $$;

-- Takes groups from their coordinators for good: after this commit no gateway stores anything for them.
create function kafka.close_groups(of_link text, group_ids text[]) returns void language plpgsql as $$
begin
  perform from kafka.catalog for update;
  insert into kafka.moved_groups (group_id, link, members)
    select g.id, of_link, (select count(*) from kafka.group_members as m where m.group_id = g.id)
    from unnest(group_ids) as g(id)
    on conflict (group_id) do nothing;
  update kafka.group_leases set instance = '00000000-0000-0000-0000-000000000000', epoch = nextval('kafka.group_epochs')
    where group_id = any (group_ids);
  update kafka.catalog set version = version + 1;
  perform pg_notify('kafka_catalog', '');
end $$;

-- Says where the members of a group find their coordinator.
create function kafka.move_group(of_group text, to_node int, to_host text, to_port int) returns void
language plpgsql as $$
begin
  perform from kafka.catalog for update;
  update kafka.moved_groups set node_id = to_node, host = to_host, port = to_port, changed_at = now()
    where group_id = of_group;
  update kafka.catalog set version = version + 1;
  perform pg_notify('kafka_catalog', '');
end $$;

-- Groups come back, without members.
create function kafka.return_groups(group_ids text[]) returns void language plpgsql as $$
begin
  perform from kafka.catalog for update;
  delete from kafka.moved_groups where group_id = any (group_ids);
  delete from kafka.group_members where group_id = any (group_ids);
  update kafka.catalog set version = version + 1;
  perform pg_notify('kafka_catalog', '');
end $$;

-- `kafka.outbox_topic` as it was, but for topics that move.
do $$
declare
  known text := pg_get_functiondef('kafka.outbox_topic(text, int, int, boolean)'::regprocedure);
  wanted text := replace(known, '  if partition is not null then', $new$  if found.move_state is not null then
    raise exception 'the topic % %', topic,
      case found.move_state when 'moved' then 'has moved to another cluster' else 'is moving to another cluster' end
      using errcode = 'object_not_in_prerequisite_state', hint = 'headgate shadow status says where it is.';
  end if;
  if partition is not null then$new$);
begin
  assert length(wanted) > length(known), 'kafka.outbox_topic is not the one that this migration was written for';
  execute wanted;
end $$;

comment on table kafka.moves is 'Topics that are moving or have moved to another cluster: headgate shadow cutover';
