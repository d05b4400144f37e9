-- Subscribing beside whoever ends or expires the same subscription: nobody gets an error for it, and nobody waits for
-- maintenance, which leaves out what others hold.

create or replace function prepare_subscription() returns trigger language plpgsql
security definer set search_path from current as $$
declare
  old_id int;
begin
  if tg_op = 'UPDATE' then
    if (new.id, new.group_id, new.conditions_sql, new.params) is distinct from
      (old.id, old.group_id, old.conditions_sql, old.params)
    then
      raise exception 'a subscription is not changed: make another one' using errcode = 'feature_not_supported';
    end if;
    return new;
  end if;
  new.identity := sha256(convert_to(jsonb_build_array(new.conditions_sql, new.params)::text, 'UTF8'));
  -- One at a time: who comes back takes the place of a row, and two of them would wait for each other.
  perform pg_advisory_xact_lock('subscriptions'::regclass::oid::int,
    hashtext(new.group_id || encode(new.identity, 'hex')));
  -- Held until the subscription is there, so that the group is not taken for an empty one.
  loop
    select gno into new.gno from subscription_groups where id = new.group_id for key share;
    exit when found;
    insert into subscription_groups (id) values (new.group_id) on conflict do nothing;
  end loop;
  if not exists (select from group_cursors where gno = new.gno) then
    insert into group_cursors (gno, pos) select new.gno, pos from dispatcher_state order by id desc limit 1;
  end if;
  new.cond_id := condition_id_of(new.conditions_sql);
  -- Who comes back finds what has been delivered in the meantime.
  delete from subscriptions as s where s.gno = new.gno and s.identity = new.identity and s.expired_at is not null
    returning s.id into old_id;
  new.id := coalesce(old_id, new.id);
  return new;
end $$;

-- The topics that lead to a subscription; none if they do not decide about it.
create function topics_of(cond conditions, params jsonb) returns setof text
language sql stable set search_path from current as $$
  select distinct t.topic from (
    select params ->> 'topic' where cond.route = 'topic' and jsonb_typeof(params -> 'topic') = 'string'
    union all
    select e #>> '{}' from jsonb_array_elements(
      case when cond.route = 'topics' and jsonb_typeof(params -> 'topics') = 'array' then params -> 'topics' end
    ) as e where jsonb_typeof(e) = 'string'
    union all
    select unnest(cond.topics) where cond.route = 'literal'
  ) as t(topic)
$$;

create or replace function follow_subscription() returns trigger language plpgsql
security definer set search_path from current as $$
begin
  if tg_op = 'INSERT' then
    insert into subscription_topics (topic, cond_id, subscription_id, gno, evaluated)
    select t.topic, c.id, new.id, new.gno, c.evaluated
    from conditions as c cross join lateral topics_of(c, new.params) as t(topic) where c.id = new.cond_id;
    if (select c.route = 'patterns' from conditions as c where c.id = new.cond_id) then
      perform follow_patterns(new.id, new.gno, new.params -> 'patterns');
    end if;
    if new.expiry_interval is not null then
      insert into subscription_activity (subscription_id) values (new.id);
    end if;
  end if;
  if tg_op = 'UPDATE' then
    delete from subscription_topics where subscription_id = new.id;
    delete from subscription_patterns where subscription_id = new.id;
  end if;
  if tg_op = 'DELETE' then
    insert into subscription_changes (gno) values (old.gno);
    delete from parked_subscriptions where subscription_id = old.id;
    delete from subscription_failures where subscription_id = old.id;
  else
    insert into subscription_changes (gno) values (new.gno);
  end if;
  return null;
end $$;

-- Whether the caller may act for a group: whoever was granted some groups has these and no others.
create function check_group(of_group text) returns void language plpgsql stable set search_path from current as $$
begin
  if exists (select from parts where part = 'consumer' and groups is not null) and not is_owner(caller())
    and not exists (select from parts as p where p.part = 'consumer' and (p.groups is null or of_group = any (p.groups))
      and exists (select from pg_roles where rolname = p.role) and pg_has_role(caller(), p.role, 'member'))
  then
    raise exception 'the group % is not one of %', of_group, caller() using errcode = 'insufficient_privilege',
      hint = 'The owner of the schema gives it groups: grant_usage(''consumer'', role, groups).';
  end if;
end $$;

create or replace function subscribe_v1(of_group text, conditions text, with_params jsonb, expiry interval,
  for_client text)
returns int language plpgsql set search_path from current as $$
declare
  found_id int;
  as_identity bytea := sha256(convert_to(jsonb_build_array(conditions, with_params)::text, 'UTF8'));
begin
  perform check_group(of_group);
  begin
    -- From here on it is held, and does not end or expire before we have.
    update subscriptions as s
      set expiry_interval = case when expiry is not null then greatest(s.expiry_interval, expiry) end
      from subscription_groups as g
      where g.id = of_group and g.gno = s.gno and s.identity = as_identity and s.expired_at is null
        and s.expiry_interval is not null and (expiry is null or expiry > s.expiry_interval)
      returning s.id into found_id;
    if found_id is null then
      select s.id into strict found_id from subscriptions as s join subscription_groups as g on g.gno = s.gno
        where g.id = of_group and s.identity = as_identity and s.expired_at is null for share of s;
    end if;
  exception when no_data_found then
    null;  -- with the end of this block, a row that has expired while we waited for it is not held any more
  end;
  if found_id is null then
    insert into subscriptions (group_id, conditions_sql, params, expiry_interval)
      values (of_group, conditions, with_params, expiry)
      on conflict (gno, identity) do update set group_id = excluded.group_id returning id into found_id;
  end if;
  update subscription_activity set last_active_at = clock_timestamp()
    where subscription_id = found_id and last_active_at not between clock_timestamp() - interval '1 second'
      and clock_timestamp();
  if for_client is not null then
    loop
      perform from clients where id = for_client for key share;
      exit when found;
      insert into clients (id) values (for_client) on conflict (id) do nothing;
    end loop;
    insert into client_subscriptions (client_id, subscription_id) values (for_client, found_id) on conflict do nothing;
  end if;
  return found_id;
end $$;

create or replace function unsubscribe_v1(sid int) returns boolean language plpgsql set search_path from current as $$
begin
  perform check_group(s.group_id) from subscriptions as s where s.id = sid;
  delete from subscriptions where id = sid;
  return found;
end $$;

create or replace function leave_v1(of_client text, sid int) returns void
language plpgsql set search_path from current as $$
begin
  perform check_group(s.group_id) from subscriptions as s where s.id = sid;
  delete from client_subscriptions where client_id = of_client and subscription_id = sid;
  update subscription_activity set last_active_at = clock_timestamp() where subscription_id = sid;
end $$;
