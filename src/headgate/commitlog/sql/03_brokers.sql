-- The gateways of a database, as clients see them: brokers of one cluster.

-- One row. The id is what clients see as the cluster's id.
create table kafka.cluster (
    only_row boolean primary key default true check (only_row),
    id uuid not null default gen_random_uuid()
);
insert into kafka.cluster default values;

-- A gateway is known by the address that it advertises: one that restarts there gets its node id back.
-- `instance` tells two processes at one address apart; the younger one holds the row.
create table kafka.brokers (
    node_id int generated always as identity primary key,
    host text not null,
    port int not null,
    instance uuid not null,
    started_at timestamptz not null default now(),
    expires_at timestamptz not null,
    unique (host, port)
);

-- A gateway begins: it holds the row of its address from now on, whoever held it before.
create function kafka.broker_join(at_host text, at_port int, as_instance uuid, ttl interval) returns int
language plpgsql as $$
declare
    joined int;
begin
    delete from kafka.brokers where expires_at < now() - interval '1 day' and (host, port) <> (at_host, at_port);
    insert into kafka.brokers as b (host, port, instance, expires_at)
    values (at_host, at_port, as_instance, now() + ttl)
    on conflict (host, port) do update
        set instance = excluded.instance, expires_at = excluded.expires_at, started_at = now()
    returning node_id into joined;
    perform pg_notify('kafka_brokers', '');
    return joined;
end
$$;

-- A gateway lives. False: another process holds its address, and is alive.
create function kafka.broker_beat(of_node int, as_instance uuid, ttl interval) returns boolean
language sql as $$
    with beat as (
        update kafka.brokers set expires_at = now() + ttl, instance = as_instance
        where node_id = of_node and (instance = as_instance or expires_at < now())
        returning 1)
    select exists (select from beat);
$$;

-- A gateway ends.
create function kafka.broker_leave(of_node int, as_instance uuid) returns void
language sql as $$
    update kafka.brokers set expires_at = now() where node_id = of_node and instance = as_instance;
    select pg_notify('kafka_brokers', '');
$$;

create view kafka.live_brokers as
select node_id, host, port, instance, started_at from kafka.brokers where expires_at > now();
