/** Sessions of the console. */
export const consoleSessions = `
alter table offshoot.api_keys
  -- A session of the console is stored like a key, so that everything that checks keys checks sessions.
  add column session boolean not null default false,
  -- The key that opened the session. The session ends with it. Null: a sign-in link opened the session.
  add column parent_id bigint references offshoot.api_keys (id) on delete cascade;
alter table offshoot.api_keys drop constraint api_keys_user_id_name_key;
create unique index api_keys_name on offshoot.api_keys (user_id, name) where not session;
create index api_keys_user on offshoot.api_keys (user_id);
create index api_keys_parent on offshoot.api_keys (parent_id) where parent_id is not null;

-- Sign-in links. Each is deleted when it is used.
create table offshoot.sign_in_tokens (
  hash bytea primary key,
  user_id text not null references offshoot.users on delete cascade,
  expires_at timestamptz not null
);
`
