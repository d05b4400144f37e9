-- Patterns of topics, found by index. `*` stands for one word, `>` at the end for one word or more:
--
--   select subscribe('audit', 'topic_matches(e.topic, s.params -> ''patterns'')', '{"patterns": ["order.*", "user.>"]}');
--
-- The shape of a pattern says where its wildcards are. From a topic and a shape follows the one pattern of this shape
-- that matches, so a topic is looked up once for each shape that is in use, however many patterns there are.

create table topic_shapes (shape text primary key);

create table subscription_patterns (
  pattern text not null,
  subscription_id int not null references subscriptions (id) on delete cascade,
  gno int not null,
  primary key (pattern, subscription_id)
);
create index subscription_patterns_of on subscription_patterns (subscription_id);

-- 'order.*.>' has the shape 'w.*.>'. A `>` elsewhere than at the end is a word like others.
create function shape_of(pattern text) returns text language sql immutable parallel safe
set search_path from current as $$
  select string_agg(case when t.word = '*' or t.word = '>' and t.place = cardinality(p.words) then t.word else 'w' end,
    '.' order by t.place)
  from (select string_to_array(pattern, '.') as words) as p
  cross join lateral unnest(p.words) with ordinality as t(word, place)
$$;

-- The pattern of this shape that matches a topic; null if the topic has too few words, or too many.
create function pattern_of(topic text, shape text) returns text language sql immutable parallel safe
set search_path from current as $$
  select case
    when shape like '%>' and cardinality(p.words) >= cardinality(p.places)
      or cardinality(p.words) = cardinality(p.places)
    then (select string_agg(case when s.place in ('*', '>') then s.place else p.words[s.n] end, '.' order by s.n)
      from unnest(p.places) with ordinality as s(place, n)) end
  from (select string_to_array(topic, '.') as words, string_to_array(shape, '.') as places) as p
$$;

-- Whether a topic matches one of some patterns. Conditions may call it.
create function topic_matches(topic text, patterns jsonb) returns boolean language sql immutable parallel safe
set search_path from current as $$
  select coalesce(bool_or(pattern_of(topic, shape_of(p.pattern)) = p.pattern), false)
  from jsonb_array_elements_text(case when jsonb_typeof(patterns) = 'array' then patterns end) as p(pattern)
$$;

create type topic_match as (topic text, gno int, subscription_id int);

-- Who has patterns that these topics match.
create function match_patterns(topics text[]) returns topic_match[]
language plpgsql stable set search_path from current set plan_cache_mode = force_custom_plan
set enable_seqscan = off as $$
declare
  shapes text[] := array(select s.shape from topic_shapes as s);
begin
  if cardinality(shapes) = 0 then
    return '{}';
  end if;
  return array(
    select row(t.topic, p.gno, p.subscription_id)::topic_match
    from unnest(topics) as t(topic) cross join unnest(shapes) as s(shape)
    cross join lateral (select p.gno, p.subscription_id from subscription_patterns as p
      where p.pattern = pattern_of(t.topic, s.shape) offset 0) as p
    group by t.topic, p.gno, p.subscription_id);
end $$;

-- The patterns of a subscription. Every topic is looked up for every shape: there are to be few of them.
create function follow_patterns(sid int, of_gno int, patterns jsonb) returns void
language plpgsql volatile set search_path from current as $$
declare
  found text[];
begin
  if jsonb_typeof(patterns) is distinct from 'array' or exists (
    select from jsonb_array_elements(patterns) as p
    where jsonb_typeof(p) <> 'string' or length(p #>> '{}') not between 1 and 255)
  then
    raise exception 'patterns must be an array of texts' using errcode = 'invalid_parameter_value',
      hint = 'Give params like {"patterns": ["order.*"]}.';
  end if;
  found := array(select distinct p.pattern from jsonb_array_elements_text(patterns) as p(pattern));
  insert into subscription_patterns (pattern, subscription_id, gno) select p, sid, of_gno from unnest(found) as p;
  insert into topic_shapes (shape) select distinct shape_of(p) from unnest(found) as p order by 1
    on conflict (shape) do update set shape = excluded.shape;  -- held, so that it is not taken for unused
  if (select count(*) from topic_shapes) > 64 then
    raise exception 'there are too many shapes of patterns' using errcode = 'program_limit_exceeded',
      hint = 'order.* and user.* have one shape, order.*.> has another. Write what is rare as a condition on e.topic.';
  end if;
end $$;

-- Shapes that no pattern has any more.
create function forget_shapes() returns void language plpgsql volatile set search_path from current as $$
declare
  unused text[];
begin
  unused := array(select s.shape from topic_shapes as s where not exists (
    select from subscription_patterns as p where shape_of(p.pattern) = s.shape) for update skip locked);
  -- Again, with what was committed before we had them.
  delete from topic_shapes as t where t.shape = any (unused) and not exists (
    select from subscription_patterns as p where shape_of(p.pattern) = t.shape);
end $$;
