-- Webhooks that keep the order of their events: a request that fails is tried again before the next one is made.

alter table webhooks add column ordered boolean not null default false;

-- As register_webhook_v1; `keep_order` makes all that comes later wait for what fails.
create function register_webhook_v2(of_name text, conditions text, with_params jsonb, to_url text, with_secret text,
  with_headers jsonb, retry_after_s double precision[], items int, keep_order boolean)
returns int language plpgsql volatile set search_path from current as $$
declare
  webhook int := register_webhook_v1(of_name, conditions, with_params, to_url, with_secret, with_headers,
    retry_after_s, items);
begin
  update webhooks set ordered = keep_order where id = webhook;
  return webhook;
end $$;
