-- Installs the broker, or brings it up to date, with psql alone:
--
--   psql -1 -f install.sql                      in the schema headgate
--   psql -1 -v schema=events -f install.sql     in another one

\set ON_ERROR_STOP on
\if :{?schema}
\else
  \set schema headgate
\endif
\o /dev/null
set client_min_messages = warning;
select pg_advisory_xact_lock(hashtextextended('headgate broker ' || :'schema', 0));
create schema if not exists :"schema";
set search_path = :"schema", pg_temp;
create table if not exists migrations (
  name text primary key, applied_at timestamptz not null default now(), checksum text);
alter table migrations add column if not exists checksum text;

select not exists (select from migrations where name = '0.1.0_01_pre_tables') as missing \gset
\if :missing
  \ir 0.1.0_01_pre_tables.sql
  insert into migrations (name) values ('0.1.0_01_pre_tables');
\endif

select not exists (select from migrations where name = '0.1.0_02_pre_partitions') as missing \gset
\if :missing
  \ir 0.1.0_02_pre_partitions.sql
  insert into migrations (name) values ('0.1.0_02_pre_partitions');
\endif

select not exists (select from migrations where name = '0.1.0_03_pre_publish') as missing \gset
\if :missing
  \ir 0.1.0_03_pre_publish.sql
  insert into migrations (name) values ('0.1.0_03_pre_publish');
\endif

select not exists (select from migrations where name = '0.1.0_04_pre_subscriptions') as missing \gset
\if :missing
  \ir 0.1.0_04_pre_subscriptions.sql
  insert into migrations (name) values ('0.1.0_04_pre_subscriptions');
\endif

select not exists (select from migrations where name = '0.1.0_05_pre_dispatch') as missing \gset
\if :missing
  \ir 0.1.0_05_pre_dispatch.sql
  insert into migrations (name) values ('0.1.0_05_pre_dispatch');
\endif

select not exists (select from migrations where name = '0.1.0_06_pre_groups') as missing \gset
\if :missing
  \ir 0.1.0_06_pre_groups.sql
  insert into migrations (name) values ('0.1.0_06_pre_groups');
\endif

select not exists (select from migrations where name = '0.1.0_07_pre_retries') as missing \gset
\if :missing
  \ir 0.1.0_07_pre_retries.sql
  insert into migrations (name) values ('0.1.0_07_pre_retries');
\endif

select not exists (select from migrations where name = '0.1.0_08_pre_maintain') as missing \gset
\if :missing
  \ir 0.1.0_08_pre_maintain.sql
  insert into migrations (name) values ('0.1.0_08_pre_maintain');
\endif

select not exists (select from migrations where name = '0.1.0_09_pre_status') as missing \gset
\if :missing
  \ir 0.1.0_09_pre_status.sql
  insert into migrations (name) values ('0.1.0_09_pre_status');
\endif

select not exists (select from migrations where name = '0.2.0_01_pre_writers') as missing \gset
\if :missing
  \ir 0.2.0_01_pre_writers.sql
  insert into migrations (name) values ('0.2.0_01_pre_writers');
\endif

select not exists (select from migrations where name = '0.2.0_02_pre_grants') as missing \gset
\if :missing
  \ir 0.2.0_02_pre_grants.sql
  insert into migrations (name) values ('0.2.0_02_pre_grants');
\endif

select not exists (select from migrations where name = '0.2.0_03_pre_table_events') as missing \gset
\if :missing
  \ir 0.2.0_03_pre_table_events.sql
  insert into migrations (name) values ('0.2.0_03_pre_table_events');
\endif

select not exists (select from migrations where name = '0.2.0_04_pre_reading') as missing \gset
\if :missing
  \ir 0.2.0_04_pre_reading.sql
  insert into migrations (name) values ('0.2.0_04_pre_reading');
\endif

select not exists (select from migrations where name = '0.2.0_10_pre_webhooks') as missing \gset
\if :missing
  \ir 0.2.0_10_pre_webhooks.sql
  insert into migrations (name) values ('0.2.0_10_pre_webhooks');
\endif

select not exists (select from migrations where name = '0.3.0_01_pre_tables') as missing \gset
\if :missing
  \ir 0.3.0_01_pre_tables.sql
  insert into migrations (name) values ('0.3.0_01_pre_tables');
\endif

select not exists (select from migrations where name = '0.3.0_02_pre_patterns') as missing \gset
\if :missing
  \ir 0.3.0_02_pre_patterns.sql
  insert into migrations (name) values ('0.3.0_02_pre_patterns');
\endif

select not exists (select from migrations where name = '0.3.0_02_pre_publish') as missing \gset
\if :missing
  \ir 0.3.0_02_pre_publish.sql
  insert into migrations (name) values ('0.3.0_02_pre_publish');
\endif

select not exists (select from migrations where name = '0.3.0_03_pre_conditions') as missing \gset
\if :missing
  \ir 0.3.0_03_pre_conditions.sql
  insert into migrations (name) values ('0.3.0_03_pre_conditions');
\endif

select not exists (select from migrations where name = '0.3.0_04_pre_subscriptions') as missing \gset
\if :missing
  \ir 0.3.0_04_pre_subscriptions.sql
  insert into migrations (name) values ('0.3.0_04_pre_subscriptions');
\endif

select not exists (select from migrations where name = '0.3.0_05_pre_dispatch') as missing \gset
\if :missing
  \ir 0.3.0_05_pre_dispatch.sql
  insert into migrations (name) values ('0.3.0_05_pre_dispatch');
\endif

select not exists (select from migrations where name = '0.3.0_06_pre_parked') as missing \gset
\if :missing
  \ir 0.3.0_06_pre_parked.sql
  insert into migrations (name) values ('0.3.0_06_pre_parked');
\endif

select not exists (select from migrations where name = '0.3.0_07_pre_maintain') as missing \gset
\if :missing
  \ir 0.3.0_07_pre_maintain.sql
  insert into migrations (name) values ('0.3.0_07_pre_maintain');
\endif

select not exists (select from migrations where name = '0.3.0_08_pre_log') as missing \gset
\if :missing
  \ir 0.3.0_08_pre_log.sql
  insert into migrations (name) values ('0.3.0_08_pre_log');
\endif

select not exists (select from migrations where name = '0.3.0_09_pre_status') as missing \gset
\if :missing
  \ir 0.3.0_09_pre_status.sql
  insert into migrations (name) values ('0.3.0_09_pre_status');
\endif

select not exists (select from migrations where name = '0.3.0_20_pre_leases') as missing \gset
\if :missing
  \ir 0.3.0_20_pre_leases.sql
  insert into migrations (name) values ('0.3.0_20_pre_leases');
\endif

select not exists (select from migrations where name = '0.3.0_21_pre_histories') as missing \gset
\if :missing
  \ir 0.3.0_21_pre_histories.sql
  insert into migrations (name) values ('0.3.0_21_pre_histories');
\endif

select not exists (select from migrations where name = '0.3.0_22_pre_wake') as missing \gset
\if :missing
  \ir 0.3.0_22_pre_wake.sql
  insert into migrations (name) values ('0.3.0_22_pre_wake');
\endif

select not exists (select from migrations where name = '0.3.0_23_pre_reading') as missing \gset
\if :missing
  \ir 0.3.0_23_pre_reading.sql
  insert into migrations (name) values ('0.3.0_23_pre_reading');
\endif

select not exists (select from migrations where name = '0.3.0_24_pre_soon') as missing \gset
\if :missing
  \ir 0.3.0_24_pre_soon.sql
  insert into migrations (name) values ('0.3.0_24_pre_soon');
\endif

select not exists (select from migrations where name = '0.3.0_25_pre_webhooks') as missing \gset
\if :missing
  \ir 0.3.0_25_pre_webhooks.sql
  insert into migrations (name) values ('0.3.0_25_pre_webhooks');
\endif

select not exists (select from migrations where name = '0.3.0_26_pre_streams') as missing \gset
\if :missing
  \ir 0.3.0_26_pre_streams.sql
  insert into migrations (name) values ('0.3.0_26_pre_streams');
\endif

select not exists (select from migrations where name = '0.3.0_40_pre_pausing') as missing \gset
\if :missing
  \ir 0.3.0_40_pre_pausing.sql
  insert into migrations (name) values ('0.3.0_40_pre_pausing');
\endif

select not exists (select from migrations where name = '0.3.0_41_pre_recurring') as missing \gset
\if :missing
  \ir 0.3.0_41_pre_recurring.sql
  insert into migrations (name) values ('0.3.0_41_pre_recurring');
\endif

select not exists (select from migrations where name = '0.3.0_90_pre_rights') as missing \gset
\if :missing
  \ir 0.3.0_90_pre_rights.sql
  insert into migrations (name) values ('0.3.0_90_pre_rights');
\endif

select not exists (select from migrations where name = '0.3.0_91_pre_plans') as missing \gset
\if :missing
  \ir 0.3.0_91_pre_plans.sql
  insert into migrations (name) values ('0.3.0_91_pre_plans');
\endif

select not exists (select from migrations where name = '0.3.0_92_pre_lookups') as missing \gset
\if :missing
  \ir 0.3.0_92_pre_lookups.sql
  insert into migrations (name) values ('0.3.0_92_pre_lookups');
\endif

select not exists (select from migrations where name = '0.3.0_93_pre_retries') as missing \gset
\if :missing
  \ir 0.3.0_93_pre_retries.sql
  insert into migrations (name) values ('0.3.0_93_pre_retries');
\endif

select not exists (select from migrations where name = '0.3.0_94_pre_recurring') as missing \gset
\if :missing
  \ir 0.3.0_94_pre_recurring.sql
  insert into migrations (name) values ('0.3.0_94_pre_recurring');
\endif

select not exists (select from migrations where name = '0.3.0_95_pre_slots') as missing \gset
\if :missing
  \ir 0.3.0_95_pre_slots.sql
  insert into migrations (name) values ('0.3.0_95_pre_slots');
\endif

select not exists (select from migrations where name = '0.3.0_96_pre_dispatch') as missing \gset
\if :missing
  \ir 0.3.0_96_pre_dispatch.sql
  insert into migrations (name) values ('0.3.0_96_pre_dispatch');
\endif

select not exists (select from migrations where name = '0.3.0_97_pre_publish') as missing \gset
\if :missing
  \ir 0.3.0_97_pre_publish.sql
  insert into migrations (name) values ('0.3.0_97_pre_publish');
\endif

select not exists (select from migrations where name = '0.3.0_98_pre_publish') as missing \gset
\if :missing
  \ir 0.3.0_98_pre_publish.sql
  insert into migrations (name) values ('0.3.0_98_pre_publish');
\endif

select not exists (select from migrations where name = '0.3.0_99_pre_publish') as missing \gset
\if :missing
  \ir 0.3.0_99_pre_publish.sql
  insert into migrations (name) values ('0.3.0_99_pre_publish');
\endif

reset search_path;
reset client_min_messages;
\o
