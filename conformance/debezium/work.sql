-- Every type that both know, with ordinary and with odd values; then every kind of change.
create type mood as enum ('sad', 'ok');
create domain posint as int check (value > 0);
create domain price as numeric(10, 2);
create type pair as (a int, b text);
create table every (
  id int primary key, i2 int2, i8 int8, f4 float4, f8 float8, n numeric, n102 numeric(10, 2), n50 numeric(5),
  nbig numeric(30, 10), m money, b bool, bt bytea, ch char(5), vc varchar(20), tx text, c1 "char",
  dt date, tm time, tm3 time(3), ttz timetz, ts timestamp, ts3 timestamp(3), ts0 timestamp(0), tstz timestamptz,
  tstz3 timestamptz(3), tstz0 timestamptz(0), iv interval, u uuid, js json, jb jsonb, bi1 bit(1), bi5 bit(5),
  bi16 bit(16), vb varbit, vb5 varbit(5), ine inet, ci cidr, mac macaddr, mac8 macaddr8, mo mood, dom posint, pt point,
  r4 int4range, r8 int8range, nr numrange, tr tsrange, tzr tstzrange, dr daterange, tv tsvector, o oid,
  ia int[], i8a bigint[], ta text[], na numeric(10, 2)[], tsa timestamp[], tza timestamptz[], da date[], ja jsonb[],
  ba bool[], ua uuid[], fa float8[], ma mood[], tma time[],
  ia2 int[], bya bytea[], nva numeric[], iva interval[], nm name, pr pair, bx box, ln line, mr int4multirange, ls pg_lsn,
  tq tsquery, x8 xid8, dn price
);
create table keyed (id int primary key, a int not null, b text not null default 'deft', c timestamptz not null,
                    d numeric(10, 2) not null, e jsonb not null, f int default 5, g bool not null default true,
                    h text, i float8 not null, j date not null, k uuid not null, l int[] not null);
create table by_index (a int not null, b int not null, c text, unique (a, b));
alter table by_index replica identity using index by_index_a_b_key;
create table whole (a int, b text);
alter table whole replica identity full;
create table whole_keyed (id int primary key, n int, big text);
alter table whole_keyed alter big set storage external;
alter table whole_keyed replica identity full;
create table large (id int primary key, n int, a text, ta text[], ia int[], i8a bigint[], ua uuid[], jb jsonb, bt bytea,
                    num numeric);
alter table large alter a set storage external, alter ta set storage external, alter ia set storage external,
  alter i8a set storage external, alter ua set storage external, alter jb set storage external,
  alter bt set storage external, alter num set storage external;
create table appended (a int, b text);
create table done (id int primary key);
-- begin
insert into every values (
  1, 2, 9007199254740993, 1.5, 0.1, 123.4500, 12.30, 77, 12345678901234567890.0123456789, 1234.5, true, '\xdeadbeef', 'ab',
  'vc', E'te"x\t\u00e9', 'c', '2024-02-29', '12:34:56.789012', '12:34:56.789', '12:34:56.789012+02',
  '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789', '2024-02-29 12:34:56', '2024-02-29 12:34:56.789012+02',
  '2024-02-29 12:34:56.5+00', '2024-02-29 12:34:56+00', '1 year 2 mons 3 days 04:05:06.789',
  '123e4567-e89b-12d3-a456-426614174000', '{"a": 1,  "b":[1,2]}', '{"b":[1,2],"a":1}', B'1', B'10101',
  B'0000000100000001', B'101', B'10101', '10.0.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', 'ok',
  5, '(1,2)', '[1,5)', '[1,5)', '[1.5,2.5]', '[2024-01-01,2024-01-02)', '[2024-01-01 00:00+00,2024-01-02 00:00+00)',
  '[2024-01-01,2024-01-02)', 'a:1 b:2', 42, '{1,NULL,3}', '{1,2}', '{a,NULL,"b c"}', '{1.10,2.20}',
  '{2024-02-29 12:34:56.789012}', '{2024-02-29 12:34:56.789012+00}', '{2024-02-29}', '{"{\"a\": 1}"}', '{t,f}',
  '{123e4567-e89b-12d3-a456-426614174000}', '{1.5,NaN}', '{ok,sad}', '{12:00}',
  '{{1,2},{3,4}}', '{"\\xdead"}', '{1,2.50}', '{1 day}', 'nm', row(1, 'x y'), '(3,4),(1,2)', '{1,2,3}', '{[1,3),[5,7)}',
  '16/B374D848', 'a & b', '7', 1.50
);
insert into every (id) values (2);
insert into every (id, f4, f8, n, n102, dt, ts, tstz, tm, ttz, iv, i8, tx, m, n50)
values (3, 'NaN', 'Infinity', 'NaN', -0.01, 'infinity', 'infinity', 'infinity', '24:00:00', '24:00:00+00',
        '-1 mons -3 days -04:05:06.789', -5, '', -0.05, -300);
insert into every (id, f4, f8, n, n102, dt, ts, tstz, tm, ttz, iv)
values (4, '-Infinity', 1e300, 0, 0, '0044-03-15 BC', '0044-03-15 12:00:00 BC', '0044-03-15 12:00:00+00 BC', '00:00:00',
        '00:00:00-05:30', '0');
insert into every (id, f4, f8, n, n102, dt, ts, tstz, tm, ttz, iv, ia)
values (5, 1e10, 100, -99999999999999999999.5, -128.00, '12024-03-15', '12024-03-15 12:00:00', '1969-12-31 23:59:59.5+00',
        '00:00:00.1', '00:00:00.1-05:30', '1 day', '{}');
insert into every (id, dt, ts, tstz, n, f4) values (6, '-infinity', '-infinity', '-infinity', 1000.00, 1234567.8);
insert into every (id, n, f8, iv, tstz0) values (7, 0.10, 1e22, '1 microsecond', '294276-12-31 23:59:59+00');
insert into every (id, n, f8, iv) values (8, -100, 1e-5, '-1 days +02:00');
insert into every (id, n, f8) values (9, 12345678901234567890123456789012345678901234567890, 123456789.123);
insert into keyed values (1, 5, 'x', '2024-01-01 00:00+00', 1.5, '{}', 6, false, 'h', 1.5, '2024-01-01',
                          '123e4567-e89b-12d3-a456-426614174000', '{1}');
insert into keyed (id, a, c, d, e, f, i, j, k, l) values (7, 5, 'epoch', 1.5, '{}', null, 1.5, '2024-01-01',
                                                          '123e4567-e89b-12d3-a456-426614174000', '{1}');
update keyed set a = 6 where id = 1;
update keyed set id = 2 where id = 1;
delete from keyed;
insert into by_index values (1, 2, 'x');
update by_index set b = 3;
delete from by_index;
insert into whole values (1, 'x');
update whole set b = 'y';
delete from whole;
insert into whole_keyed values (1, 1, repeat('x', 3000));
update whole_keyed set n = 2;
update whole_keyed set id = 2;
delete from whole_keyed;
insert into large select 1, 1, repeat('x', 5000), array[repeat('y', 5000)], array_agg(g), array_agg(g::bigint),
  array_agg(gen_random_uuid()), to_jsonb(repeat('z', 5000)), convert_to(repeat('q', 5000), 'utf8'), repeat('9', 20000)::numeric
from generate_series(1, 3000) g;
update large set n = 2;
insert into appended values (1, 'x');
truncate appended;
select pg_logical_emit_message(true, 'prefix', 'content');
begin; insert into appended values (2, 'x'); insert into appended values (3, null); commit;
insert into done values (1);
