-- The store, version 3. Whatever an erasure must destroy stands in `contents`, `facts`, `search` and
-- `tenants.name`; all are rowid tables, and no index holds plaintext: a *_tag is a keyed hash (memory/vault).
-- docs/formats/store.md says what each column promises.

CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value BLOB NOT NULL
);

CREATE TABLE tenants (
  id INTEGER PRIMARY KEY,
  number BLOB NOT NULL UNIQUE,          -- 16 random bytes: the tenant as links know it
  name_tag BLOB NOT NULL UNIQUE,        -- random once nothing of the tenant is left
  name TEXT NOT NULL,                   -- empty once nothing of the tenant is left
  last_seq INTEGER NOT NULL DEFAULT 0
);

-- One row a statement, for good. Content-free: link, salts of links, K, and the signed entry. entry_index is
-- its place in the log; NULL is the outbox.
CREATE TABLE events (
  seq INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL REFERENCES tenants (id),
  tenant_seq INTEGER NOT NULL,
  commitment BLOB NOT NULL UNIQUE,
  link BLOB NOT NULL,
  link_salt BLOB NOT NULL,
  content_hash BLOB NOT NULL,
  entry BLOB NOT NULL,
  entry_index INTEGER,
  UNIQUE (tenant, tenant_seq)
);
CREATE INDEX events_outbox ON events (seq) WHERE entry_index IS NULL;
CREATE INDEX events_logged ON events (entry_index) WHERE entry_index IS NOT NULL;

-- What the links say that statements did to statements, found by target. Content-free, a cache of the links.
CREATE TABLE acts (
  id INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL,
  target INTEGER NOT NULL,              -- seq of the statement acted on
  seq INTEGER NOT NULL,                 -- seq of the statement that acts
  act TEXT NOT NULL
);
CREATE INDEX acts_target ON acts (tenant, target, seq);
CREATE INDEX acts_seq ON acts (seq);
CREATE INDEX acts_holds ON acts (tenant, seq) WHERE act = 'holds';

-- What an erasure destroys. No row = erased.
CREATE TABLE contents (
  seq INTEGER PRIMARY KEY REFERENCES events (seq),
  content BLOB NOT NULL,
  salt BLOB NOT NULL
);

-- A cache of the fold of events: one row for each write whose content is still there.
CREATE TABLE facts (
  seq INTEGER PRIMARY KEY REFERENCES events (seq),
  tenant INTEGER NOT NULL,
  agent_tag BLOB NOT NULL,
  key_tag BLOB,                         -- keyed hash of (agent, canonical key); NULL without a key
  subject_tag BLOB,
  text_tag BLOB NOT NULL,               -- keyed hash of (agent, the text without case and white space)
  status TEXT NOT NULL,
  valid_from INTEGER NOT NULL,
  declared INTEGER NOT NULL,            -- 1 if the writer said since when it holds
  valid_until INTEGER,
  recorded_at INTEGER NOT NULL,
  replaced_at INTEGER,                  -- to the hour alone once the statement that tells it is erased
  replaced_by INTEGER,                  -- seq of the event that retired or retracted it
  end_erased INTEGER NOT NULL DEFAULT 0, -- 1 once that event's content is erased: it is served no more
  on_hold INTEGER NOT NULL DEFAULT 0    -- how many legal holds keep it: then it is neither served nor erased
);
CREATE INDEX facts_key ON facts (tenant, key_tag, status, seq) WHERE key_tag IS NOT NULL;
CREATE INDEX facts_subject ON facts (tenant, subject_tag, seq) WHERE subject_tag IS NOT NULL;
CREATE INDEX facts_lost ON facts (tenant, key_tag) WHERE end_erased OR on_hold;
CREATE INDEX facts_ahead ON facts (tenant, agent_tag)
  WHERE valid_from > recorded_at AND status IN ('active', 'conflict');
CREATE INDEX facts_text ON facts (tenant, text_tag, seq);
CREATE INDEX facts_agent ON facts (tenant, agent_tag, status, seq);

-- Words of facts that a read may find, each after the token of its scope (memory/search). Contentless, so that a
-- row is deleted by the text it was made of. Nothing in it counts but which fact has which word in which column.
CREATE VIRTUAL TABLE search USING fts5 (
  key, value, body, content = '', detail = column, columnsize = 0,
  tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
);
INSERT INTO search (search, rank) VALUES ('secure-delete', 1);

-- Vectors of facts, where the settings ask for search by meaning: as much as the text, so erased with it.
CREATE TABLE vectors (
  seq INTEGER PRIMARY KEY REFERENCES events (seq),
  tenant INTEGER NOT NULL,
  agent_tag BLOB NOT NULL,
  model TEXT NOT NULL,                  -- what made it: only vectors of one model are compared
  vector BLOB NOT NULL                  -- a signed byte a number
);
CREATE INDEX vectors_agent ON vectors (tenant, agent_tag, seq);

-- The value ledger: values a key has retired, as keyed hashes. Survives deletion and retention; an erasure decides.
CREATE TABLE ledger (
  id INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL,
  agent_tag BLOB NOT NULL,
  key_tag BLOB NOT NULL,
  subject_tag BLOB,
  value_tag BLOB NOT NULL,              -- keyed hash of (agent, kind, canonical form)
  name_tags BLOB NOT NULL,              -- keyed hashes, 16 bytes each, of the words of the key
  word_count INTEGER NOT NULL,          -- words in the value: bounds the spans to look up
  canon_version INTEGER NOT NULL,
  source INTEGER,                       -- seq of the fact that held it; NULL once that was erased on request
  expires_at INTEGER,
  until INTEGER                         -- until when what replaced it holds, where that says so itself; NULL for good
);
CREATE UNIQUE INDEX ledger_value ON ledger (tenant, key_tag, canon_version, value_tag);
CREATE INDEX ledger_span ON ledger (tenant, value_tag);
CREATE INDEX ledger_agent ON ledger (tenant, agent_tag, canon_version, word_count);
CREATE INDEX ledger_until ON ledger (tenant, key_tag) WHERE until IS NOT NULL;
CREATE INDEX ledger_source ON ledger (tenant, source) WHERE source IS NOT NULL;
CREATE INDEX ledger_expiry ON ledger (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX ledger_subject ON ledger (tenant, subject_tag) WHERE subject_tag IS NOT NULL;

-- A row goes with the last fact of its key: nothing would be left to show what its hash is of.
CREATE TABLE conflicts (
  seq INTEGER PRIMARY KEY,              -- of the statement that opened it
  tenant INTEGER NOT NULL,
  agent_tag BLOB NOT NULL,
  key_tag BLOB NOT NULL,
  closed_by INTEGER                     -- seq of the statement that closed it
);
CREATE UNIQUE INDEX conflicts_open ON conflicts (tenant, key_tag) WHERE closed_by IS NULL;
CREATE INDEX conflicts_agent ON conflicts (tenant, agent_tag, seq) WHERE closed_by IS NULL;
CREATE INDEX conflicts_key ON conflicts (tenant, key_tag);

CREATE TABLE idempotency (
  id INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL,
  request_tag BLOB NOT NULL,            -- keyed hash of (agent, idempotency key)
  body_tag BLOB NOT NULL,               -- keyed hash of the whole proposal; empty once its statement is erased and
                                        -- the request's own hash was kept, else the row goes
  seq INTEGER NOT NULL,                 -- the statement it made or agreed with
  answer TEXT NOT NULL                  -- outcome and reason codes, commitments: no content
);
CREATE UNIQUE INDEX idempotency_request ON idempotency (tenant, request_tag);
CREATE INDEX idempotency_seq ON idempotency (tenant, seq);

-- Single-use tokens: reaffirmations and erasure confirmations, stored hashed. And refusals of what is erased, counted
-- for an hour as tokens that nobody has.
CREATE TABLE tokens (
  id INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL,
  token_hash BLOB NOT NULL,
  purpose TEXT NOT NULL,                -- 'reaffirm', 'forget' or 'blind'
  bound BLOB NOT NULL,                  -- keyed hash of what it is bound to
  target INTEGER,                       -- seq of the refusal it lifts
  expires_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX tokens_hash ON tokens (tenant, token_hash);
CREATE INDEX tokens_expiry ON tokens (expires_at);

-- Access tokens of the HTTP surfaces. Who a token is for is sealed under the token itself, so no row names anybody.
CREATE TABLE access (
  id INTEGER PRIMARY KEY,
  number BLOB NOT NULL UNIQUE,          -- 16 random bytes: the part of the token that lists show
  token_hash BLOB NOT NULL,             -- SHA-256 of the 32 random bytes of its secret part
  tenant_tag BLOB NOT NULL,             -- as tenants.name_tag, so that it goes with the tenant
  sealed BLOB NOT NULL,                 -- tenant, agent and client under a key made of the secret part
  scopes INTEGER NOT NULL,              -- a bit for each
  made_at INTEGER NOT NULL,             -- to the hour
  expires_at INTEGER                    -- NULL for never
);
CREATE INDEX access_tenant ON access (tenant_tag);

-- To whom openings were given, by random references: whoever has one can prove that content for ever.
CREATE TABLE openings (
  id INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL,
  seq INTEGER NOT NULL,                 -- the statement that it opens
  recipient BLOB NOT NULL,              -- 16 random bytes
  given_at INTEGER NOT NULL,            -- to the hour
  kind TEXT NOT NULL DEFAULT 'opening'  -- what was given: 'opening', 'evidence' or 'export'
);
CREATE INDEX openings_seq ON openings (tenant, seq);

-- Backups that were made, by random references: an erasure tells which of them held what it takes.
CREATE TABLE backups (
  id INTEGER PRIMARY KEY,
  number BLOB NOT NULL,                 -- 16 random bytes
  made_at INTEGER NOT NULL,             -- to the hour
  expires_at INTEGER NOT NULL,          -- to the hour
  last_seq INTEGER NOT NULL             -- the last statement in it
);

-- Reading rights between agents of a tenant: finds the statement of each, whose content says who granted what to
-- whom; revoked by an act on it.
CREATE TABLE grants (
  seq INTEGER PRIMARY KEY,              -- of the statement
  tenant INTEGER NOT NULL,
  owner_tag BLOB NOT NULL,              -- keyed hash of the agent whose memory may be read
  reader_tag BLOB NOT NULL              -- keyed hash of the agent that may read it
);
CREATE INDEX grants_reader ON grants (tenant, reader_tag, owner_tag);
CREATE INDEX grants_owner ON grants (tenant, owner_tag, seq);
CREATE INDEX acts_revokes ON acts (tenant, target) WHERE act = 'revokes';

-- Erasures: `executing` is durable before anything is deleted.
CREATE TABLE erasures (
  number INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL,
  request BLOB NOT NULL,                -- 16 random bytes
  state TEXT NOT NULL,
  tombstone INTEGER,                    -- seq of the erase statement
  detail BLOB NOT NULL,                 -- dCBOR, content-free: counts, guard disposition, times
  manifest BLOB                         -- the signed manifest, as it lies beside the tiles
);
