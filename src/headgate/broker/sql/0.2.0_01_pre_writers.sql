-- Writers that come with rows in one order, such as pipelines: how far each is in a topic, so that a replay leaves out
-- what is here.

create table writers (
  writer text not null,
  topic text not null,
  last_id text collate "C" not null,
  at timestamptz not null default now(),
  primary key (writer, topic)
) with (fillfactor = 50);

-- The last rows of a writer, which nobody else can move until the transaction ends; '' before the first.
create function begin_writing_v1(of_writer text, of_topics text[]) returns table (topic text, last_id text)
language plpgsql set search_path from current as $$
#variable_conflict use_column
begin
  insert into writers (writer, topic, last_id)
  select of_writer, t, '' from unnest(of_topics) as t order by t on conflict do nothing;
  return query
  select w.topic, w.last_id from writers as w where w.writer = of_writer and w.topic = any (of_topics)
  order by w.topic for update;
end $$;

create function end_writing_v1(of_writer text, of_topics text[], last_ids text[]) returns void
language sql set search_path from current as $$
  update writers as w set last_id = n.last_id, at = now()
  from unnest(of_topics, last_ids) as n (topic, last_id) where w.writer = of_writer and w.topic = n.topic
$$;
