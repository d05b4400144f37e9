-- The shop that the demo watches: a few tables that refer to each other, and a publication of all of them.
create schema if not exists shop;

create table if not exists shop.customers (
  id bigint generated always as identity primary key,
  name text not null,
  email text not null,
  created_at timestamptz not null default now()
);

create table if not exists shop.orders (
  id bigint generated always as identity primary key,
  customer_id bigint not null references shop.customers,
  status text not null default 'new',
  total numeric(10, 2) not null,
  details jsonb not null default '{}',
  changed_at timestamptz not null default now()
);

create table if not exists shop.stock (
  product text primary key,
  amount integer not null
);

insert into shop.stock
select 'product-' || n, 1000 from generate_series(1, 20) n
on conflict do nothing;

do $$
begin
  if not exists (select from pg_publication where pubname = 'shop') then
    create publication shop for tables in schema shop;
  end if;
end
$$;
