-- A statement that publishes costs less, once more. A setting of a function is made and undone at every call: these name
-- what they need instead, as they have their caller's rights. And while no dispatcher wants to be woken, which is when
-- much is published, the trigger's condition says so, and no function is called.

do $do$
begin
  execute format($create$
    create or replace function publish_v1(topics text[], payloads jsonb[], metadatas jsonb[] default null)
    returns setof bigint language plpgsql as $$
    begin
      return query
      insert into %1$I.events (topic, payload, metadata)
      select u.topic, u.payload, u.metadata
      from rows from (pg_catalog.unnest(topics), pg_catalog.unnest(payloads), pg_catalog.unnest(metadatas))
        with ordinality as u(topic, payload, metadata, ord)
      order by u.ord
      returning id;
    end $$ $create$, current_schema());
  execute format($create$
    create or replace function publish(topic text, payload jsonb, metadata jsonb default null,
      due_at timestamptz default null)
    returns bigint language plpgsql as $$
    declare
      new_id bigint;
    begin
      if due_at is null then
        insert into %1$I.events (topic, payload, metadata) values (publish.topic, publish.payload, publish.metadata)
          returning id into new_id;
        return new_id;
      end if;
      return %1$I.schedule_v1(array[due_at], array[topic], array[payload], array[metadata]);
    end $$ $create$, current_schema());
  execute format($create$
    create or replace function publish_many(topics text[], payloads jsonb[], metadatas jsonb[] default null)
    returns setof bigint language sql as $$ select %1$I.publish_v1(topics, payloads, metadatas) $$ $create$,
    current_schema());
end $do$;

-- 0: nobody wants to be woken. Otherwise the function looks until when.
drop trigger wake_dispatcher on events;
create trigger wake_dispatcher after insert on events for each statement
  when (pg_sequence_last_value('wake_until'::regclass) <> 0) execute function wake_dispatcher();
