-- Statements that SQLite and PostgreSQL both understand, but for `accounts`, which is PostgreSQL's. Parameters are written `:name`.

-- name: account
select did, host, rev, data, head, active, status, local_status from accounts where did = :did

-- name: accounts
select did, host, rev, data, head, active, status, local_status from accounts where did = any(:dids)

-- name: list_accounts
select did, host, rev, data, head, active, status, local_status from accounts
where did > :after order by did limit :count

-- name: list_taken_down
select did, host, rev, data, head, active, status, local_status from accounts
where local_status is not null and did > :after order by did limit :count

-- name: count_accounts
select host, count(*) from accounts where host <> '' group by host

-- name: put_account
insert into accounts (did, host, rev, data, head, active, status, local_status)
values (:did, :host, :rev, :data, :head, :active, :status, :local_status)
on conflict (did) do update set host = excluded.host, rev = excluded.rev, data = excluded.data, head = excluded.head,
    active = excluded.active, status = excluded.status, local_status = excluded.local_status

-- name: hosts
select hostname, status, cursor, account_count, account_limit, trusted, failures, last_seen, added_at from hosts

-- name: put_host
insert into hosts (hostname, status, cursor, account_count, account_limit, trusted, failures, last_seen, added_at)
values (:hostname, :status, :cursor, :account_count, :account_limit, :trusted, :failures, :last_seen, :added_at)
on conflict (hostname) do update set status = excluded.status, cursor = excluded.cursor,
    account_count = excluded.account_count, account_limit = excluded.account_limit, trusted = excluded.trusted,
    failures = excluded.failures, last_seen = excluded.last_seen

-- name: domain_bans
select domain from domain_bans

-- name: ban_domain
insert into domain_bans (domain) values (:domain) on conflict do nothing

-- name: unban_domain
delete from domain_bans where domain = :domain
