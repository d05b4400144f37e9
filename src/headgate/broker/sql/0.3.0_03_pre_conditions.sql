-- Conditions: which of them a topic decides alone, and as whom the others are run.
--
-- They are written by condition_id_of and by nobody else; no role that is not the owner of the schema may write to the
-- table. And they are run by one function, which belongs to the role <schema>_conditions and refuses to work for any
-- that could do more than read: also after a dump was restored where that role does not exist.

-- The topics that an event must have for a condition, if its text begins with them: e.topic = 'a', or
-- e.topic in ('a', 'b'), alone or followed by AND. Texts with a backslash are rendered in another way, and left out.
create function literal_topics(expression text) returns text[] language plpgsql immutable set search_path from current
as $$
declare
  text_of constant text := '''(?:[^''\\]|'''')*''::text';
  clause text := substring(expression from '^\(?(\(e\.topic = (?:' || text_of || '|ANY \(ARRAY\[' || text_of || '(?:, '
    || text_of || ')*\]\))\))');
begin
  if clause is null or expression <> clause and not starts_with(expression, '(' || clause || ' AND ') then
    return null;
  end if;
  return array(select distinct replace(m[1], '''''', '''')
    from regexp_matches(clause, '''((?:[^'']|'''')*)''::text', 'g') as m order by 1);
end $$;

-- Whether patterns of topics decide alone; with something behind them, they are evaluated.
create function is_by_patterns(expression text) returns boolean language sql immutable set search_path from current as $$
  select expression ~ '^([a-z_][a-z0-9_]*\.|"[^"]+"\.)?topic_matches\(e\.topic, \(s\.params -> ''patterns''::text\)\)$'
$$;

create or replace function route_of(expression text) returns text language sql immutable set search_path from current
as $$
  select coalesce(
    (select key from unnest(array['topic', 'topics']) as key
      where expression = route_clause(key) or starts_with(expression, '(' || route_clause(key) || ' AND ')),
    case when literal_topics(expression) is not null then 'literal' when is_by_patterns(expression) then 'patterns' end)
$$;

-- Whether more than the topic has to be looked at.
create function is_evaluated(expression text) returns boolean language sql immutable set search_path from current as $$
  select not (expression in ('true', route_clause('topic'), route_clause('topics')) or is_by_patterns(expression)
    or literal_topics(expression) is not null and not starts_with(expression, '((e.topic = '))
$$;

-- As before; what may be called is one more.
create or replace function objection_to(tree text, of_view regclass) returns text
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
  where p.oid not in ('slot_of(text, int)'::regprocedure, 'topic_matches(text, jsonb)'::regprocedure) and (
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

update conditions set route = route_of(expression), topics = literal_topics(expression),
  evaluated = is_evaluated(expression);
update subscription_topics as t set evaluated = c.evaluated from conditions as c where c.id = t.cond_id;
insert into subscription_topics (topic, cond_id, subscription_id, gno, evaluated)
select t.topic, c.id, s.id, s.gno, c.evaluated
from conditions as c join subscriptions as s on s.cond_id = c.id and s.expired_at is null
cross join lateral unnest(c.topics) as t(topic) where c.route = 'literal'
on conflict do nothing;

-- Conditions that were parked: now each of their subscriptions is, for itself.
insert into parked_subscriptions (subscription_id, at, next_pos, event_id, error)
select s.id, c.parked_at, c.parked_pos, c.parked_event, c.parked_error
from conditions as c join subscriptions as s on s.cond_id = c.id and s.expired_at is null
where c.parked_at is not null;
update conditions set parked_at = null, parked_pos = null, parked_event = null, parked_error = null
where parked_at is not null;

-- Why conditions cannot be run by a role; null: they can.
create function objection_to_role(of_role name) returns text language sql stable set search_path from current as $$
  select case
    when r.oid is null then format('there is no role %s', of_role)
    when r.rolsuper or r.rolcreaterole or r.rolcreatedb or r.rolreplication or r.rolbypassrls
      then format('the role %s may do more than read', of_role)
    when r.rolcanlogin then format('somebody may log in as %s', of_role)
    when pg_has_role(r.oid, n.nspowner, 'member') then format('the role %s is a member of the schema''s owner', of_role)
    when has_schema_privilege(r.oid, n.oid, 'create') then format('the role %s may create in the schema', of_role)
    when exists (select from pg_auth_members as m where m.member = r.oid)
      then format('the role %s is a member of other roles', of_role)
  end
  from pg_namespace as n left join pg_roles as r on r.rolname = of_role
  where n.nspname = current_schema()
$$;

-- Why no condition can be run now; null: they can.
create function evaluation_objection() returns text language sql stable set search_path from current as $$
  select case when r.rolname <> current_schema() || '_conditions'
    then format('evaluate_v1 belongs to %s instead of %s_conditions', r.rolname, current_schema())
    else objection_to_role(r.rolname) end
  from pg_proc as p join pg_roles as r on r.oid = p.proowner
  where p.pronamespace = current_schema()::regnamespace and p.proname = 'evaluate_v1'
$$;

create type matched as (ord int, subscription_id int);

-- The cases of one expression: planned for a fraction of what a query for each condition costs.
create function cases_of(conds int[]) returns text language sql stable set search_path from current as $$
  select 'case s.cond_id ' || string_agg(format('when %s then (%s)', c.id, c.expression), ' ' order by c.id) || ' end'
  from conditions as c where c.id = any (conds)
$$;

-- Which events, of these, the conditions match for these subscriptions, or for all but the parked ones. Each event is
-- named by its place in `ids`.
create function evaluate_v1(ids bigint[], conds int[], subs int[], parked int[]) returns matched[]
language plpgsql security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  objection text := case when current_user <> current_schema() || '_conditions'
    then format('they would be run by %s', current_user) else objection_to_role(current_user) end;
  wanted constant text := ' and ($4::int[] is null or s.id = any ($4)) and s.id <> all ($5)';
  routed int[] := array(select c.id from conditions as c where c.id = any (conds) and c.route is not null);
  -- What has many subscriptions gets a query of its own, which may use an index on params.
  few int[] := array(select c.id from conditions as c where c.id = any (conds) and c.route is null and 20 > (
    select count(*) from (
      select from subscriptions as s where s.cond_id = c.id and s.expired_at is null limit 20) as n));
  parts text[];
  found_rows matched[];
begin
  if objection is not null then
    raise exception 'conditions are not run: %', objection using errcode = 'HG003',
      hint = 'See set_conditions_role().';
  end if;
  parts := array(select format('select e.ord, s.id from batch as e join subscriptions as s on s.cond_id = %s'
      ' where s.expired_at is null', c.id) || wanted || format(' and (%s)', c.expression)
    from conditions as c where c.id = any (conds) and c.id <> all (routed || few));
  -- "offset 0" keeps look-ups what they are, and conditions behind them.
  if cardinality(few) > 0 then
    parts := parts || ('select e.ord, s.id from batch as e cross join (select s.* from subscriptions as s'
      ' where s.cond_id = any ($6) and s.expired_at is null' || wanted || ' offset 0) as s where ' || cases_of(few));
  end if;
  if cardinality(routed) > 0 then
    parts := parts || ('select e.ord, s.id from batch as e cross join lateral (select s.* from subscription_topics as t'
      ' join subscriptions as s on s.id = t.subscription_id where t.topic = e.topic and t.cond_id + 0 = any ($7)'
      || wanted || ' offset 0) as s where ' || cases_of(routed));
  end if;
  if cardinality(parts) = 0 then
    return '{}';
  end if;
  execute 'with batch as materialized (select e.*, i.ord from events as e'
    ' join unnest($1) with ordinality as i(id, ord) on i.id = e.id'
    ' where e.id between $2 and $3 and e.subscription_id is null)'
    ' select array_agg(row(m.ord, m.id)::matched) from (' || array_to_string(parts, ' union all ') || ') as m'
    into found_rows using ids, ids[1], ids[cardinality(ids)], subs, parked, few, routed;
  return coalesce(found_rows, '{}');
end $$;

-- Gives evaluate_v1 to the role that conditions are run as, and makes that role if we may; what is in the way, or null.
-- Where we may not, somebody who may does `create role <schema>_conditions nologin; grant <schema>_conditions to
-- <owner of the schema>`, and then the owner calls this. Until then conditions that have to be run are refused.
create function set_conditions_role() returns text language plpgsql volatile set search_path from current as $$
declare
  runner name := current_schema() || '_conditions';
begin
  begin
    execute format('create role %I nologin noinherit', runner);
  exception when duplicate_object or unique_violation or insufficient_privilege then
    null;
  end;
  begin
    execute format('grant %I to current_user', runner);
  exception when others then
    null;  -- superusers need it not, and somebody may have done it already
  end;
  begin
    execute format('grant usage, create on schema %I to %I', current_schema(), runner);
    execute format('grant select on events, subscriptions, subscription_topics, conditions to %I', runner);
    execute format('grant execute on function evaluate_v1(bigint[], int[], int[], int[]), slot_of(text, int),'
      ' topic_matches(text, jsonb), shape_of(text), pattern_of(text, text), objection_to_role(name), cases_of(int[]),'
      ' route_clause(text) to %I', runner);
    execute format('alter function evaluate_v1(bigint[], int[], int[], int[]) owner to %I', runner);
    execute format('revoke create on schema %I from %I', current_schema(), runner);
  exception when insufficient_privilege or undefined_object then
    return sqlerrm;
  end;
  return evaluation_objection();
end $$;

-- The one way into the table. The row is held, so that it is not taken for unused before its subscription is there.
create or replace function condition_id_of(of_source text) returns int language plpgsql
security definer set search_path from current as $$
declare
  found_id int;
  of_key bytea := sha256(convert_to(of_source, 'UTF8'));
  meaning text;
  objection text;
begin
  select id into found_id from conditions where source_key = of_key and source = of_source
    order by id limit 1 for key share;
  if found_id is not null then
    return found_id;
  end if;
  meaning := understood(of_source);
  objection := evaluation_objection();
  if is_evaluated(meaning) and objection is not null then
    raise exception 'conditions on more than topics are refused: %', objection
      using errcode = 'insufficient_privilege', hint = format('Create the role %s_conditions, grant it to the owner'
        ' of the schema and call set_conditions_role().', current_schema());
  end if;
  insert into conditions (source, source_key, expression, route, topics, evaluated)
    values (of_source, of_key, meaning, route_of(meaning), literal_topics(meaning), is_evaluated(meaning))
    returning id into found_id;
  return found_id;
end $$;

-- Programs of the version before find what there was through this: it is not used any more, and does nothing.
revoke execute on function match_events(bigint[], int[], int[]) from public;
