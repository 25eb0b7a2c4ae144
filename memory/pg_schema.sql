-- The store on PostgreSQL, version 2: the tables of schema.sql, tenant first in every key and hash-partitioned by it.
-- What an erasure must destroy is sealed before it gets here (memory/pg_seal): a content stands in content_boxes under
-- the key of its row in content_keys, and that under the key of its subject or tenant. Words are keyed hashes.
-- docs/POSTGRES.md says what each column promises. `partitioned` makes the partitions and the policies.

CREATE TABLE meta (
  name text PRIMARY KEY,
  value bytea NOT NULL                  -- dCBOR
);

CREATE SEQUENCE tenant_ids;
CREATE TABLE tenants (
  id bigint PRIMARY KEY DEFAULT nextval('tenant_ids'),
  number bytea NOT NULL UNIQUE,
  name_tag bytea NOT NULL UNIQUE,
  name text NOT NULL,                   -- sealed under the key of the home; empty once nothing of the tenant is left
  last_seq bigint NOT NULL DEFAULT 0,
  recorded_at bigint NOT NULL DEFAULT 0 -- of its last statement: times never go back within a tenant
);

CREATE TABLE tenant_keys (
  number bytea PRIMARY KEY,             -- of the tenant
  wrapped bytea NOT NULL                -- its keys, under the key of the home
);

CREATE SEQUENCE event_seqs;             -- numbers statements in no order of commits, and with gaps
CREATE TABLE events (
  seq bigint NOT NULL,
  tenant bigint NOT NULL,
  tenant_seq bigint NOT NULL,
  commitment bytea NOT NULL,
  link bytea NOT NULL,
  link_salt bytea NOT NULL,
  content_hash bytea NOT NULL,
  entry bytea NOT NULL,
  entry_index bigint,
  PRIMARY KEY (tenant, seq),
  UNIQUE (tenant, tenant_seq),
  UNIQUE (tenant, commitment)
) PARTITION BY HASH (tenant);
CREATE INDEX events_outbox ON events (seq) WHERE entry_index IS NULL;
CREATE INDEX events_logged ON events (entry_index) WHERE entry_index IS NOT NULL;
CREATE INDEX events_seq ON events (seq);

CREATE SEQUENCE act_ids;
CREATE TABLE acts (
  id bigint NOT NULL DEFAULT nextval('act_ids'),
  tenant bigint NOT NULL,
  target bigint NOT NULL,
  seq bigint NOT NULL,
  act text NOT NULL,
  PRIMARY KEY (tenant, id)
) PARTITION BY HASH (tenant);
CREATE INDEX acts_target ON acts (tenant, target, seq);
CREATE INDEX acts_seq ON acts (tenant, seq);
CREATE INDEX acts_holds ON acts (tenant, seq) WHERE act = 'holds';
CREATE INDEX acts_revokes ON acts (tenant, target) WHERE act = 'revokes';

CREATE TABLE subject_keys (
  tenant bigint NOT NULL,
  subject bytea NOT NULL,               -- keyed hash of (agent, canonical subject)
  wrapped bytea NOT NULL,               -- under the key of the tenant
  PRIMARY KEY (tenant, subject)
) PARTITION BY HASH (tenant);

CREATE TABLE content_keys (
  tenant bigint NOT NULL,
  seq bigint NOT NULL,
  subject bytea,                        -- under whose key this one is; NULL: under that of the tenant
  wrapped bytea NOT NULL,
  PRIMARY KEY (tenant, seq)
) PARTITION BY HASH (tenant);
CREATE INDEX content_keys_subject ON content_keys (tenant, subject) WHERE subject IS NOT NULL;

CREATE TABLE content_boxes (
  tenant bigint NOT NULL,
  seq bigint NOT NULL,
  content bytea NOT NULL,
  salt bytea NOT NULL,
  PRIMARY KEY (tenant, seq)
) PARTITION BY HASH (tenant);

CREATE TYPE sealed AS (tenant bigint, seq bigint, subject_key bytea, record_key bytea, box bytea);
CREATE VIEW contents WITH (security_invoker = true) AS
  SELECT b.tenant, b.seq,
         ROW(b.tenant, b.seq, s.wrapped, k.wrapped, b.content)::sealed AS content,
         ROW(b.tenant, b.seq, s.wrapped, k.wrapped, b.salt)::sealed AS salt
  FROM content_boxes b
  JOIN content_keys k ON k.tenant = b.tenant AND k.seq = b.seq
  LEFT JOIN subject_keys s ON s.tenant = k.tenant AND s.subject = k.subject;

CREATE TABLE facts (
  seq bigint NOT NULL,
  tenant bigint NOT NULL,
  agent_tag bytea NOT NULL,
  key_tag bytea,
  subject_tag bytea,
  text_tag bytea NOT NULL,
  status text NOT NULL,
  valid_from bigint NOT NULL,
  declared boolean NOT NULL,
  valid_until bigint,
  recorded_at bigint NOT NULL,
  replaced_at bigint,
  replaced_by bigint,
  end_erased smallint NOT NULL DEFAULT 0,
  on_hold integer NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, seq)
) PARTITION BY HASH (tenant);
CREATE INDEX facts_key ON facts (tenant, key_tag, status, seq) WHERE key_tag IS NOT NULL;
CREATE INDEX facts_subject ON facts (tenant, subject_tag, seq) WHERE subject_tag IS NOT NULL;
CREATE INDEX facts_lost ON facts (tenant, key_tag) WHERE end_erased <> 0 OR on_hold <> 0;
CREATE INDEX facts_ahead ON facts (tenant, agent_tag)
  WHERE valid_from > recorded_at AND status IN ('active', 'conflict');
CREATE INDEX facts_text ON facts (tenant, text_tag, seq);
CREATE INDEX facts_agent ON facts (tenant, agent_tag, status, seq);

-- Which fact has which word, as keyed hashes: rows, and no tsvector, so that the policies hold for the index, too,
-- and a vacuum leaves nothing of a word (docs/decisions/0106).
CREATE TABLE words (
  tenant bigint NOT NULL,
  term bigint NOT NULL,                 -- of a keyed hash of (agent, stem)
  seq bigint NOT NULL,
  places smallint NOT NULL,             -- 1 key or subject, 2 value, 4 text: a bit for each that has it
  PRIMARY KEY (tenant, term, seq)
) PARTITION BY HASH (tenant);

CREATE TABLE vectors (
  seq bigint NOT NULL,
  tenant bigint NOT NULL,
  agent_tag bytea NOT NULL,
  model text NOT NULL,
  vector bytea NOT NULL,
  PRIMARY KEY (tenant, seq)
) PARTITION BY HASH (tenant);
CREATE INDEX vectors_agent ON vectors (tenant, agent_tag, seq);

CREATE SEQUENCE ledger_ids;
CREATE TABLE ledger (
  id bigint NOT NULL DEFAULT nextval('ledger_ids'),
  tenant bigint NOT NULL,
  agent_tag bytea NOT NULL,
  key_tag bytea NOT NULL,
  subject_tag bytea,
  value_tag bytea NOT NULL,
  name_tags bytea NOT NULL,
  word_count integer NOT NULL,
  canon_version integer NOT NULL,
  source bigint,
  expires_at bigint,
  until bigint,
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, key_tag, canon_version, value_tag)
) PARTITION BY HASH (tenant);
CREATE INDEX ledger_span ON ledger (tenant, value_tag);
CREATE INDEX ledger_agent ON ledger (tenant, agent_tag, canon_version, word_count);
CREATE INDEX ledger_until ON ledger (tenant, key_tag) WHERE until IS NOT NULL;
CREATE INDEX ledger_source ON ledger (tenant, source) WHERE source IS NOT NULL;
CREATE INDEX ledger_expiry ON ledger (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX ledger_subject ON ledger (tenant, subject_tag) WHERE subject_tag IS NOT NULL;

CREATE TABLE conflicts (
  seq bigint NOT NULL,
  tenant bigint NOT NULL,
  agent_tag bytea NOT NULL,
  key_tag bytea NOT NULL,
  closed_by bigint,
  PRIMARY KEY (tenant, seq)
) PARTITION BY HASH (tenant);
CREATE UNIQUE INDEX conflicts_open ON conflicts (tenant, key_tag) WHERE closed_by IS NULL;
CREATE INDEX conflicts_agent ON conflicts (tenant, agent_tag, seq) WHERE closed_by IS NULL;
CREATE INDEX conflicts_key ON conflicts (tenant, key_tag);

CREATE SEQUENCE idempotency_ids;
CREATE TABLE idempotency (
  id bigint NOT NULL DEFAULT nextval('idempotency_ids'),
  tenant bigint NOT NULL,
  request_tag bytea NOT NULL,
  body_tag bytea NOT NULL,
  seq bigint NOT NULL,
  answer text NOT NULL,
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, request_tag)
) PARTITION BY HASH (tenant);
CREATE INDEX idempotency_seq ON idempotency (tenant, seq);

CREATE SEQUENCE token_ids;
CREATE TABLE tokens (
  id bigint NOT NULL DEFAULT nextval('token_ids'),
  tenant bigint NOT NULL,
  token_hash bytea NOT NULL,
  purpose text NOT NULL,
  bound bytea NOT NULL,
  target bigint,
  expires_at bigint NOT NULL,
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, token_hash)
) PARTITION BY HASH (tenant);
CREATE INDEX tokens_expiry ON tokens (expires_at);

CREATE SEQUENCE access_ids;
CREATE TABLE access (
  id bigint PRIMARY KEY DEFAULT nextval('access_ids'),
  number bytea NOT NULL UNIQUE,
  token_hash bytea NOT NULL,
  tenant_tag bytea NOT NULL,
  sealed bytea NOT NULL,
  scopes bigint NOT NULL,
  made_at bigint NOT NULL,
  expires_at bigint
);
CREATE INDEX access_tenant ON access (tenant_tag);

CREATE SEQUENCE opening_ids;
CREATE TABLE openings (
  id bigint NOT NULL DEFAULT nextval('opening_ids'),
  tenant bigint NOT NULL,
  seq bigint NOT NULL,
  recipient bytea NOT NULL,
  given_at bigint NOT NULL,
  kind text NOT NULL DEFAULT 'opening',
  PRIMARY KEY (tenant, id)
) PARTITION BY HASH (tenant);
CREATE INDEX openings_seq ON openings (tenant, seq);

CREATE SEQUENCE backup_ids;
CREATE TABLE backups (
  id bigint PRIMARY KEY DEFAULT nextval('backup_ids'),
  number bytea NOT NULL,
  made_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  last_seq bigint NOT NULL
);

CREATE TABLE grants (
  seq bigint NOT NULL,
  tenant bigint NOT NULL,
  owner_tag bytea NOT NULL,
  reader_tag bytea NOT NULL,
  PRIMARY KEY (tenant, seq)
) PARTITION BY HASH (tenant);
CREATE INDEX grants_reader ON grants (tenant, reader_tag, owner_tag);
CREATE INDEX grants_owner ON grants (tenant, owner_tag, seq);

CREATE TABLE erasures (
  number bigint PRIMARY KEY,
  tenant bigint NOT NULL,
  request bytea NOT NULL,
  state text NOT NULL,
  tombstone bigint,
  detail bytea NOT NULL,
  manifest bytea
);
