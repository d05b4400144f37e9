-- Publishing for later: not for ever, and it can be taken back.
--
--   select cancel(array[17]);                     -- ids that publish(..., due_at => ...) returned

-- Whether somebody may do what the owner of the schema may.
create function is_owner(who name) returns boolean language sql stable set search_path from current as $$
  select pg_has_role(who, nspowner, 'member') from pg_namespace where nspname = current_schema()
$$;

create or replace function schedule_v1(due_ats timestamptz[], topics text[], payloads jsonb[],
  metadatas jsonb[] default null, to_subscriptions int[] default null)
returns setof bigint language plpgsql set search_path from current as $$
begin
  if exists (select from unnest(due_ats) as due where not isfinite(due)) then
    raise exception 'an event cannot be due at infinity' using errcode = 'invalid_parameter_value',
      hint = 'It would wait for ever.';
  end if;
  return query
  insert into scheduled (due_at, topic, payload, metadata, subscription_id, made_by)
  select u.due_at, u.topic, u.payload, u.metadata, u.to_id, caller()
  from unnest(due_ats, topics, payloads, metadatas, to_subscriptions) with ordinality
    as u(due_at, topic, payload, metadata, to_id, ord)
  order by u.ord
  returning id;
end $$;

-- Ids that create_event_id made. Publishers insert them here: into `events`, they could bring any.
create or replace function take_at_door() returns trigger language plpgsql
security definer set search_path from current as $$
begin
  insert into scheduled (due_at, subscription_id, topic, payload, metadata, retry, made_by)
  values (to_timestamp(0) - new.id * interval '1 microsecond', new.subscription_id, new.topic, new.payload,
    new.metadata, new.retry, caller());
  return null;
end $$;

-- Takes back what is not due yet; the ids that were. One's own only, unless one is the owner of the schema.
create function cancel_v1(scheduled_ids bigint[]) returns setof bigint
language sql volatile set search_path from current as $$
  delete from scheduled as s
  where s.id = any (scheduled_ids) and (s.made_by = caller() or is_owner(caller()))
  returning s.id
$$;
create index scheduled_id on scheduled (id);

create function cancel(scheduled_ids bigint[]) returns setof bigint
language sql volatile set search_path from current as $$
  select cancel_v1(scheduled_ids)
$$;

-- A writer's name belongs to whoever used it first: moving another's place would make that one leave out its rows.
create or replace function begin_writing_v1(of_writer text, of_topics text[]) returns table (topic text, last_id text)
language plpgsql set search_path from current as $$
#variable_conflict use_column
begin
  insert into writers (writer, topic, last_id, made_by)
  select of_writer, t, '', caller() from unnest(of_topics) as t order by t on conflict do nothing;
  perform check_writer(of_writer);
  return query
  select w.topic, w.last_id from writers as w where w.writer = of_writer and w.topic = any (of_topics)
  order by w.topic for update;
end $$;

create function check_writer(of_writer text) returns void language plpgsql set search_path from current as $$
declare
  other name;
begin
  update writers set made_by = caller() where writer = of_writer and made_by is null;
  select made_by into other from writers where writer = of_writer and made_by <> caller() limit 1;
  if found and not is_owner(caller()) and not pg_has_role(caller(), other, 'member') then
    raise exception 'the writer % is of the role %', of_writer, other using errcode = 'insufficient_privilege',
      hint = 'Give this one another name.';
  end if;
end $$;

create or replace function end_writing_v1(of_writer text, of_topics text[], last_ids text[]) returns void
language plpgsql set search_path from current as $$
begin
  perform check_writer(of_writer);
  update writers as w set last_id = n.last_id, at = now()
  from unnest(of_topics, last_ids) as n (topic, last_id) where w.writer = of_writer and w.topic = n.topic;
end $$;
