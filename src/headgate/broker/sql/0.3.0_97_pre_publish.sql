-- A statement that publishes costs less. PostgreSQL reads a check from its stored text for every statement that inserts,
-- and the one on retries was longer than all else that a single event needs. Hardly any event is a retry: so a trigger
-- looks at those that are, and its condition is short.

create function check_retry() returns trigger language plpgsql set search_path from current as $$
begin
  if not coalesce(jsonb_typeof(new.retry -> 'of') = 'number' and jsonb_typeof(new.retry -> 'handler') = 'string'
    and jsonb_typeof(new.retry -> 'attempt') = 'number' and new.subscription_id is not null, false)
  then
    raise exception 'a retry names its event, its handler and its attempt, and has a subscription'
      using errcode = 'check_violation', constraint = 'events_check', table = 'events', schema = tg_table_schema;
  end if;
  return new;
end $$;
revoke execute on function check_retry() from public;
create trigger check_retry before insert or update of retry, subscription_id on events
  for each row when (new.retry is not null) execute function check_retry();
alter table events drop constraint events_check;

-- An INSERT of what it is given has one plan, which no size of it makes worth compiling; a setting would cost every call.
alter function publish(text, jsonb, jsonb, timestamptz) reset jit;
alter function publish_v1(text[], jsonb[], jsonb[]) reset jit;
