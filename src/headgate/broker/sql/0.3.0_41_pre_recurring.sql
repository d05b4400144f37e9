-- Events that come again and again, by a cron expression: exactly one for each tick.
--
--   select recur('nightly', '0 3 * * *', 'report.due', '{"kind": "daily"}', timezone => 'Europe/Berlin');
--   select cancel_recurring('nightly');
--
-- The next tick of each waits among the scheduled events. Whoever takes it makes the one after it, in the same
-- transaction: so there is always one, and never two. Ticks that were missed while nobody dispatched come once, not each.

create table recurring (
  name text primary key check (length(name) between 1 and 255),
  cron text not null,
  timezone text not null,
  topic text not null check (length(topic) between 1 and 255),
  payload jsonb not null,
  metadata jsonb,
  created_at timestamptz not null default now()
);

alter table scheduled add column recurring text;  -- of which this is the next tick
create unique index scheduled_recurring on scheduled (recurring, due_at) where recurring is not null;

-- The values of one field: numbers, names, ranges, steps and lists. `names` stand for low, low + 1 and so on.
create function cron_field(field text, low int, high int, names text[] default '{}') returns int[]
language plpgsql immutable set search_path from current as $$
declare
  part text;
  found text[];
  first int;
  last int;
  step int;
  result int[] := '{}';
begin
  field := lower(field);
  for i in 1 .. cardinality(names) loop
    field := regexp_replace(field, '\m' || names[i] || '\M', (low + i - 1)::text, 'g');
  end loop;
  foreach part in array string_to_array(field, ',') loop
    found := regexp_match(part, '^(?:(\*)|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?$');
    step := coalesce(found[4]::int, 1);
    first := coalesce(found[2]::int, low);
    last := case when found[1] is not null or found[3] is null and found[4] is not null then high
      else coalesce(found[3]::int, first) end;
    if found is null or step < 1 or first < low or last > high or first > last then
      raise exception 'the cron field % is not understood', part using errcode = 'invalid_parameter_value',
        hint = format('Use numbers from %s to %s, *, ranges like 1-5, steps like */5, and lists with commas.', low, high);
    end if;
    result := result || array(select generate_series(first, last, step));
  end loop;
  return array(select distinct unnest(result) order by 1);
end $$;

-- The first moment after another at which a cron expression ticks. As cron: if both the day of the month and the day of
-- the week are restricted, either will do. Times that a clock change leaves out are passed over, those that come twice
-- tick once.
create function next_tick(cron text, after timestamptz, timezone text default 'UTC') returns timestamptz
language plpgsql stable set search_path from current as $$
declare
  fields text[] := regexp_split_to_array(trim(case lower(trim(cron))
    when '@hourly' then '0 * * * *' when '@daily' then '0 0 * * *' when '@midnight' then '0 0 * * *'
    when '@weekly' then '0 0 * * 0' when '@monthly' then '0 0 1 * *' when '@yearly' then '0 0 1 1 *'
    when '@annually' then '0 0 1 1 *' else cron end), '\s+');
  minutes int[];
  hours int[];
  month_days int[];
  months int[];
  week_days int[];
  day date;
  on_month_day boolean;
  on_week_day boolean;
  tick timestamp;
  moment timestamptz;
begin
  if cardinality(fields) <> 5 then
    raise exception 'a cron expression has five fields, and % has %', cron, cardinality(fields)
      using errcode = 'invalid_parameter_value', hint = 'Minute, hour, day of the month, month, day of the week.';
  end if;
  minutes := cron_field(fields[1], 0, 59);
  hours := cron_field(fields[2], 0, 23);
  month_days := cron_field(fields[3], 1, 31);
  months := cron_field(fields[4], 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
  week_days := cron_field(fields[5], 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
  day := (after at time zone timezone)::date;
  for i in 0 .. 366 * 9 loop  -- a leap day may be eight years away
    on_month_day := extract(day from day)::int = any (month_days);
    on_week_day := extract(dow from day)::int = any (week_days) or extract(isodow from day)::int = any (week_days);
    if extract(month from day)::int = any (months) and (on_month_day and on_week_day
      or fields[3] not like '*%' and fields[5] not like '*%' and (on_month_day or on_week_day))
    then
      for tick in select day + make_interval(hours => h, mins => m) from unnest(hours) as h, unnest(minutes) as m order by 1
      loop
        moment := tick at time zone timezone;
        if moment > after and moment at time zone timezone = tick then
          return moment;
        end if;
      end loop;
    end if;
    day := day + 1;
  end loop;
  raise exception 'the cron expression % never ticks', cron using errcode = 'invalid_parameter_value';
end $$;

create function schedule_tick(r recurring, after timestamptz) returns void
language sql set search_path from current as $$
  insert into scheduled (due_at, topic, payload, metadata, recurring)
  values (next_tick(r.cron, after, r.timezone), r.topic, r.payload, r.metadata, r.name)
  on conflict do nothing
$$;

-- Whoever takes a tick makes the next, with the rights of the schema's owner: dispatchers may write no such rows.
create function tick_again() returns trigger
language plpgsql security definer set search_path from current as $$
declare
  r recurring;
begin
  select * into r from recurring where name = old.recurring for share;
  if found then
    perform schedule_tick(r, greatest(old.due_at, clock_timestamp()));
  end if;
  return null;
end $$;
revoke execute on function tick_again() from public;

create trigger tick_again after delete on scheduled
  for each row when (old.recurring is not null) execute function tick_again();

-- Makes a recurring event, or changes it; when it comes next.
create function recur_v1(of_name text, of_cron text, of_topic text, of_payload jsonb, of_metadata jsonb, of_timezone text)
returns timestamptz language plpgsql volatile set search_path from current as $$
declare
  r recurring;
begin
  perform next_tick(of_cron, clock_timestamp(), of_timezone);  -- says what is wrong with it
  perform pg_advisory_xact_lock('recurring'::regclass::oid::int, hashtext(of_name));
  perform cancel_recurring_v1(of_name);
  insert into recurring (name, cron, timezone, topic, payload, metadata)
    values (of_name, of_cron, of_timezone, of_topic, of_payload, of_metadata) returning * into r;
  perform schedule_tick(r, clock_timestamp());
  return (select s.due_at from scheduled as s where s.recurring = of_name);
end $$;

create function recur(name text, cron text, topic text, payload jsonb default '{}', metadata jsonb default null,
  timezone text default 'UTC')
returns timestamptz language sql set search_path from current as $$
  select recur_v1(name, cron, topic, payload, metadata, timezone)
$$;

-- False: there was none. The row goes first: a tick that is taken at this moment makes no other then.
create function cancel_recurring_v1(of_name text) returns boolean
language plpgsql volatile set search_path from current as $$
declare
  was_there boolean;
begin
  delete from recurring where name = of_name;
  was_there := found;
  delete from scheduled where recurring = of_name;
  return was_there;
end $$;

create function cancel_recurring(name text) returns boolean language sql set search_path from current as $$
  select cancel_recurring_v1(name)
$$;
