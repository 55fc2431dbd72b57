/** Every session of the console belongs to a key. */
export const sessions = `
-- Sessions of sign-in links belonged to no key, and outlived the key of their user.
delete from offshoot.api_keys where session and parent_id is null;
alter table offshoot.api_keys add constraint api_keys_session_parent check (not session or parent_id is not null);
delete from offshoot.sign_in_tokens;
alter table offshoot.sign_in_tokens
  drop column user_id,
  -- The key that the session of the link belongs to. The link ends with it.
  add column key_id bigint not null references offshoot.api_keys (id) on delete cascade;
create index sign_in_tokens_key on offshoot.sign_in_tokens (key_id);
`
