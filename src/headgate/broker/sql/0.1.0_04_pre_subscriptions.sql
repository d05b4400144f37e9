-- Subscriptions: a condition over an event `e` and the subscription `s`, with parameters.
--
--   select subscribe('mailer', 's.params @> jsonb_build_object(''topic'', e.topic)', '{"topic": "user.created"}');
--
-- Plain INSERT and DELETE work, too. Subscriptions that differ in their parameters alone share one condition, and are
-- matched together.

-- Which of n slots a key falls into: always one of 0 .. n-1. Conditions may use it to share work between groups.
create function slot_of(key text, n int) returns int language sql immutable parallel safe as $$
  select (((hashtextextended(key, 0) % n) + n) % n)::int
$$;

-- What a stored query does beyond a boolean over the two rows; null if nothing. The tree is PostgreSQL's own, so there
-- is no way of writing that it would not see through.
create function objection_to(tree text, of_view regclass) returns text
language plpgsql stable set search_path from current as $$
declare
  objection text;
begin
  if tree ~ ':has(Aggs|WindowFuncs|TargetSRFs|SubLinks|ModifyingCTE|ForUpdate|Recursive) true' or tree ~ '\{SUBLINK'
  then
    return 'it must not contain sub-selects, aggregates or functions that return sets';
  end if;
  if (select count(*) from regexp_matches(tree, '\{TARGETENTRY', 'g')) <> 1 then
    return 'it must be one expression';
  end if;
  if exists (
    select from regexp_matches(tree, ':relid (\d+)', 'g') as m
    -- Up to version 15, views have themselves in their lists, too.
    where m[1]::oid not in ('events'::regclass, 'subscriptions'::regclass, of_view))
  then
    return 'it must not read any other relation';
  end if;
  select format('it must not call %s', p.oid::regprocedure) into objection
  from regexp_matches(tree, ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)', 'g') as m
  join pg_proc as p on p.oid = m[1]::oid
  where p.oid <> 'slot_of(text, int)'::regprocedure and (
    p.pronamespace <> 'pg_catalog'::regnamespace or p.provolatile = 'v' or p.proretset
    -- Harmless as they are, they tell about the server or read whole tables.
    or p.proname ~ '^(pg_|has_|txid_|inet_(client|server)_|lo_)|_to_xml|_description$|^current_setting$')
  limit 1;
  if found then
    return objection;
  end if;
  select format('it must not use the type %s', t.oid::regtype) into objection
  from regexp_matches(tree, ':\w*type (\d+)', 'g') as m
  join pg_type as t on t.oid = m[1]::oid
  where t.typnamespace <> 'pg_catalog'::regnamespace
    and t.typrelid not in ('events'::regclass, 'subscriptions'::regclass)
  limit 1;
  return objection;
end $$;

-- A condition as PostgreSQL understood it, or an error. It is never run for this, and its own text is never used again:
-- comments and stray parentheses end here.
create function understood(source text) returns text
language plpgsql security definer set search_path from current as $$
declare
  name text := format('condition_of_%s_%s', pg_backend_pid(), floor(random() * 1000000000));
  -- The line breaks keep a comment at the end from eating the rest.
  template text := E'create view %I as select (\n%s\n)::boolean as matches'
    ' from events as e cross join subscriptions as s';
  frame text;
  text_of text;
  objection text;
begin
  if length(source) > 10000 then
    raise exception 'a condition has at most 10000 characters' using errcode = 'program_limit_exceeded';
  end if;
  -- Two statements in one text would both be run below, whatever quotes make of them.
  if position(';' in source) > 0 then
    raise exception 'a condition must not contain a semicolon' using errcode = 'insufficient_privilege',
      hint = 'Put texts that have one into params.';
  end if;
  execute format(template, name, 'true');
  frame := ltrim(pg_get_viewdef(name::regclass));
  execute format('drop view %I', name);
  begin
    execute format(template, name, source);
    text_of := ltrim(pg_get_viewdef(name::regclass));
    select objection_to(ev_action::text, name::regclass) into strict objection
      from pg_rewrite where ev_class = name::regclass;
    execute format('drop view %I', name);
  exception when others then
    raise exception 'the condition is not understood: %', sqlerrm using errcode = 'invalid_parameter_value',
      hint = 'A condition is a boolean expression over e (the event) and s (the subscription).';
  end;
  if objection is null and (not starts_with(text_of, 'SELECT ')
    or right(text_of, length(frame) - length('SELECT true')) <> substr(frame, length('SELECT true') + 1))
  then
    objection := 'it must be one expression';
  end if;
  if objection is not null then
    raise exception 'the condition is refused: %', objection using errcode = 'insufficient_privilege',
      hint = 'A condition is a boolean expression over e (the event) and s (the subscription).';
  end if;
  return substr(text_of, length('SELECT ') + 1, length(text_of) - length(frame) + length('true'));
end $$;

-- Topics can be looked up instead of compared if the condition says, first of all, that params contain the topic.
create function route_clause(key text) returns text language sql immutable set search_path from current as $$
  select case key when 'topic' then '(s.params @> jsonb_build_object(''topic'', e.topic))'
    when 'topics' then '(s.params @> jsonb_build_object(''topics'', ARRAY[e.topic]))' end
$$;

create function route_of(expression text) returns text language sql immutable set search_path from current as $$
  select key from unnest(array['topic', 'topics']) as key
  where expression = route_clause(key) or starts_with(expression, '(' || route_clause(key) || ' AND ')
$$;

-- Not for others to call: it takes what it is given for understood.
create function condition_id_of(of_source text) returns int language plpgsql
security definer set search_path from current as $$
declare
  found_id int;
  of_key bytea := sha256(convert_to(of_source, 'UTF8'));
  meaning text;
begin
  select min(id) into found_id from conditions where source_key = of_key and source = of_source;
  if found_id is null then
    meaning := understood(of_source);
    insert into conditions (source, source_key, expression, route)
      values (of_source, of_key, meaning, route_of(meaning)) returning id into found_id;
  end if;
  return found_id;
end $$;

create function prepare_subscription() returns trigger language plpgsql
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
  insert into subscription_groups (id) values (new.group_id) on conflict do nothing;
  select gno into strict new.gno from subscription_groups where id = new.group_id;
  if not exists (select from group_cursors where gno = new.gno) then
    insert into group_cursors (gno, pos) select new.gno, pos from dispatcher_state order by id desc limit 1;
  end if;
  new.cond_id := condition_id_of(new.conditions_sql);
  new.identity := sha256(convert_to(jsonb_build_array(new.conditions_sql, new.params)::text, 'UTF8'));
  -- Who comes back finds what has been delivered in the meantime.
  delete from subscriptions as s where s.gno = new.gno and s.identity = new.identity and s.expired_at is not null
    returning s.id into old_id;
  new.id := coalesce(old_id, new.id);
  return new;
end $$;
create trigger prepare_subscription before insert or update on subscriptions
  for each row execute function prepare_subscription();

create function follow_subscription() returns trigger language plpgsql
security definer set search_path from current as $$
begin
  if tg_op = 'INSERT' then
    insert into subscription_topics (topic, cond_id, subscription_id, gno)
    select distinct t.topic, c.id, new.id, new.gno
    from conditions as c cross join lateral (
      select new.params ->> 'topic' where c.route = 'topic' and jsonb_typeof(new.params -> 'topic') = 'string'
      union all
      select e #>> '{}' from jsonb_array_elements(
        case when c.route = 'topics' and jsonb_typeof(new.params -> 'topics') = 'array' then new.params -> 'topics' end
      ) as e where jsonb_typeof(e) = 'string'
    ) as t(topic)
    where c.id = new.cond_id;
    if new.expiry_interval is not null then
      insert into subscription_activity (subscription_id) values (new.id);
    end if;
  end if;
  if tg_op = 'UPDATE' then
    delete from subscription_topics where subscription_id = new.id;
  end if;
  if tg_op = 'DELETE' then
    insert into subscription_changes (gno) values (old.gno);
  else
    insert into subscription_changes (gno) values (new.gno);
  end if;
  return null;
end $$;
create trigger follow_subscription after insert or delete or update of expired_at on subscriptions
  for each row execute function follow_subscription();

-- Creates or finds a subscription. Of two expiries the longer one counts, and none at all counts most. With a client,
-- it does not expire while that client lives.
create function subscribe_v1(of_group text, conditions text, with_params jsonb, expiry interval, for_client text)
returns int language plpgsql set search_path from current as $$
declare
  found_id int;
begin
  select s.id into found_id from subscriptions as s join subscription_groups as g on g.gno = s.gno
    where g.id = of_group and s.expired_at is null
      and s.identity = sha256(convert_to(jsonb_build_array(conditions, with_params)::text, 'UTF8'));
  if not found then
    insert into subscriptions (group_id, conditions_sql, params, expiry_interval)
      values (of_group, conditions, with_params, expiry)
      on conflict (gno, identity) do update set group_id = excluded.group_id returning id into found_id;
  end if;
  update subscriptions as s
    set expiry_interval = case when expiry is not null then greatest(s.expiry_interval, expiry) end
    where s.id = found_id and s.expiry_interval is not null and (expiry is null or expiry > s.expiry_interval);
  update subscription_activity set last_active_at = clock_timestamp() where subscription_id = found_id;
  if for_client is not null then
    insert into clients (id) values (for_client) on conflict (id) do nothing;
    insert into client_subscriptions (client_id, subscription_id) values (for_client, found_id) on conflict do nothing;
  end if;
  return found_id;
end $$;

-- A client does not use a subscription any more; its time of grace begins now.
create function leave_v1(of_client text, sid int) returns void language sql set search_path from current as $$
  delete from client_subscriptions where client_id = of_client and subscription_id = sid;
  update subscription_activity set last_active_at = clock_timestamp() where subscription_id = sid;
$$;

-- A client lives: one row, whatever it holds. False: it was taken for dead and must subscribe again.
create function heartbeat_v1(of_client text) returns boolean language plpgsql set search_path from current as $$
begin
  update clients set last_active_at = clock_timestamp() where id = of_client;
  return found;
end $$;

create function unsubscribe_v1(sid int) returns boolean language plpgsql set search_path from current as $$
begin
  delete from subscriptions where id = sid;
  return found;
end $$;

create function subscribe(group_id text, conditions_sql text default 'true', params jsonb default '{}',
  expiry_interval interval default null, client_id text default null)
returns int language sql set search_path from current as $$
  select subscribe_v1(group_id, conditions_sql, params, expiry_interval, client_id)
$$;

create function unsubscribe(subscription_id int) returns boolean language sql set search_path from current as $$
  select unsubscribe_v1(subscription_id)
$$;

-- Known from the beginning, so that the first who use them do not check them all at once.
select condition_id_of(source) from unnest(array[
  'true', 's.params @> jsonb_build_object(''topic'', e.topic)',
  's.params @> jsonb_build_object(''topics'', ARRAY[e.topic])']) as source;
