-- Webhooks that keep the order of their events: of all, so that a request that fails is tried again before the next one
-- is made, or of each key.

alter table webhooks
  add column ordered boolean not null default false,
  add column order_key text check (length(order_key) between 1 and 200);  -- where in the payload: 'customer.id'

-- Events that were put off, and have not come to an end. Later ones of the same key wait for them.
create table webhook_held (
  webhook_id int not null references webhooks (id) on delete cascade,
  key text not null,
  event_id bigint not null,          -- of the first attempt
  due_at timestamptz not null,
  primary key (webhook_id, key, event_id)
);

-- As register_webhook_v1; `keep_order` makes all that comes later wait for what fails, `order_by` what has the same key.
create function register_webhook_v2(of_name text, conditions text, with_params jsonb, to_url text, with_secret text,
  with_headers jsonb, retry_after_s double precision[], items int, keep_order boolean, order_by text default null)
returns int language plpgsql volatile set search_path from current as $$
declare
  webhook int := register_webhook_v1(of_name, conditions, with_params, to_url, with_secret, with_headers,
    retry_after_s, items);
begin
  delete from webhook_held as h using webhooks as w
    where w.id = webhook and h.webhook_id = webhook and w.order_key is distinct from order_by;
  update webhooks set ordered = keep_order, order_key = order_by where id = webhook;
  return webhook;
end $$;
