CREATE TABLE datasets (
	id VARCHAR(255) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	digest VARCHAR(255) NOT NULL, 
	size BIGINT NOT NULL, 
	num_samples BIGINT NOT NULL, 
	shape JSON NOT NULL, 
	dtype VARCHAR(255) NOT NULL, 
	labeled BOOLEAN NOT NULL, 
	num_classes BIGINT, 
	created_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	CONSTRAINT pk_datasets PRIMARY KEY (id), 
	CONSTRAINT uq_datasets_name UNIQUE (name)
);
CREATE TABLE federations (
	id VARCHAR(255) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	state VARCHAR(255) NOT NULL, 
	version BIGINT NOT NULL, 
	config JSON NOT NULL, 
	seed BIGINT NOT NULL, 
	join_nonce VARCHAR(255) NOT NULL, 
	join_hash VARCHAR(255) NOT NULL, 
	round_index BIGINT NOT NULL, 
	accuracy DOUBLE PRECISION, 
	collect_deadline_at TIMESTAMP WITHOUT TIME ZONE, 
	error VARCHAR(255), 
	detail TEXT, 
	created_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	started_at TIMESTAMP WITHOUT TIME ZONE, 
	finished_at TIMESTAMP WITHOUT TIME ZONE, 
	CONSTRAINT pk_federations PRIMARY KEY (id), 
	CONSTRAINT uq_federations_join_hash UNIQUE (join_hash), 
	CONSTRAINT uq_federations_name UNIQUE (name)
);
CREATE TABLE idempotency (
	principal VARCHAR(255) NOT NULL, 
	key VARCHAR(255) NOT NULL, 
	request_hash VARCHAR(255) NOT NULL, 
	answer JSON NOT NULL, 
	created_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (principal, key)
);
CREATE INDEX ix_idempotency_created_at ON idempotency (created_at);
CREATE TABLE tokens (
	id VARCHAR(255) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	role VARCHAR(255) NOT NULL, 
	nonce VARCHAR(255) NOT NULL, 
	token_hash VARCHAR(255) NOT NULL, 
	created_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	revoked_at TIMESTAMP WITHOUT TIME ZONE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_token_hash UNIQUE (token_hash)
);
CREATE TABLE workers (
	id VARCHAR(255) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	pid BIGINT NOT NULL, 
	device VARCHAR(255) NOT NULL, 
	last_seen_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	job_id VARCHAR(255), 
	CONSTRAINT pk_workers PRIMARY KEY (id)
);
CREATE TABLE clients (
	id VARCHAR(255) NOT NULL, 
	federation_id VARCHAR(255) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	prototype VARCHAR(255) NOT NULL, 
	token_hash VARCHAR(255) NOT NULL, 
	num_samples BIGINT NOT NULL, 
	label_counts JSON, 
	capabilities JSON NOT NULL, 
	enrolled_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	last_seen_at TIMESTAMP WITHOUT TIME ZONE, 
	revoked_at TIMESTAMP WITHOUT TIME ZONE, 
	CONSTRAINT pk_clients PRIMARY KEY (id), 
	CONSTRAINT fk_clients_federation_id_federations FOREIGN KEY(federation_id) REFERENCES federations (id), 
	CONSTRAINT uq_clients_token_hash UNIQUE (token_hash)
);
CREATE INDEX ix_clients_federation_id ON clients (federation_id);
CREATE UNIQUE INDEX uq_clients_live_name ON clients (federation_id, name) WHERE revoked_at IS NULL;
CREATE TABLE rounds (
	id VARCHAR(255) NOT NULL, 
	federation_id VARCHAR(255) NOT NULL, 
	index BIGINT NOT NULL, 
	state VARCHAR(255) NOT NULL, 
	needed BIGINT NOT NULL, 
	min_updates BIGINT NOT NULL, 
	base_models JSON NOT NULL, 
	models JSON NOT NULL, 
	opened_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	deadline_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	closed_at TIMESTAMP WITHOUT TIME ZONE, 
	published_at TIMESTAMP WITHOUT TIME ZONE, 
	reason TEXT, 
	metrics JSON NOT NULL, 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_federation_id_federations FOREIGN KEY(federation_id) REFERENCES federations (id), 
	CONSTRAINT uq_rounds_federation_id_index UNIQUE (federation_id, index)
);
CREATE INDEX ix_rounds_federation_id ON rounds (federation_id);
CREATE INDEX ix_rounds_state ON rounds (state);
CREATE TABLE discriminators (
	id VARCHAR(255) NOT NULL, 
	federation_id VARCHAR(255) NOT NULL, 
	client_id VARCHAR(255) NOT NULL, 
	digest VARCHAR(255) NOT NULL, 
	size BIGINT NOT NULL, 
	received_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	scores_digest VARCHAR(255), 
	CONSTRAINT pk_discriminators PRIMARY KEY (id), 
	CONSTRAINT fk_discriminators_client_id_clients FOREIGN KEY(client_id) REFERENCES clients (id), 
	CONSTRAINT fk_discriminators_federation_id_federations FOREIGN KEY(federation_id) REFERENCES federations (id), 
	CONSTRAINT uq_discriminators_client_id UNIQUE (client_id)
);
CREATE INDEX ix_discriminators_federation_id ON discriminators (federation_id);
CREATE TABLE jobs (
	id VARCHAR(255) NOT NULL, 
	kind VARCHAR(255) NOT NULL, 
	state VARCHAR(255) NOT NULL, 
	federation_id VARCHAR(255) NOT NULL, 
	round_id VARCHAR(255), 
	attempt BIGINT NOT NULL, 
	max_attempts BIGINT NOT NULL, 
	fence BIGINT NOT NULL, 
	worker_id VARCHAR(255), 
	lease_until TIMESTAMP WITHOUT TIME ZONE, 
	not_before TIMESTAMP WITHOUT TIME ZONE, 
	hinted_at TIMESTAMP WITHOUT TIME ZONE, 
	cancel_requested BOOLEAN NOT NULL, 
	progress JSON, 
	device VARCHAR(255), 
	peak_memory_bytes BIGINT, 
	error VARCHAR(255), 
	detail TEXT, 
	created_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	started_at TIMESTAMP WITHOUT TIME ZONE, 
	finished_at TIMESTAMP WITHOUT TIME ZONE, 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT fk_jobs_federation_id_federations FOREIGN KEY(federation_id) REFERENCES federations (id), 
	CONSTRAINT fk_jobs_round_id_rounds FOREIGN KEY(round_id) REFERENCES rounds (id)
);
CREATE INDEX ix_jobs_due ON jobs (state, lease_until);
CREATE INDEX ix_jobs_federation_id ON jobs (federation_id);
CREATE INDEX ix_jobs_round_id ON jobs (round_id);
CREATE TABLE models (
	id VARCHAR(255) NOT NULL, 
	federation_id VARCHAR(255), 
	round_id VARCHAR(255), 
	round_index BIGINT, 
	prototype VARCHAR(255), 
	role VARCHAR(255) NOT NULL, 
	name VARCHAR(255), 
	digest VARCHAR(255) NOT NULL, 
	size BIGINT NOT NULL, 
	architecture VARCHAR(255), 
	options JSON NOT NULL, 
	parents JSON NOT NULL, 
	recipe JSON, 
	metrics JSON NOT NULL, 
	created_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	CONSTRAINT pk_models PRIMARY KEY (id), 
	CONSTRAINT fk_models_federation_id_federations FOREIGN KEY(federation_id) REFERENCES federations (id), 
	CONSTRAINT fk_models_round_id_rounds FOREIGN KEY(round_id) REFERENCES rounds (id)
);
CREATE INDEX ix_models_digest ON models (digest);
CREATE INDEX ix_models_federation_id ON models (federation_id);
CREATE TABLE participants (
	round_id VARCHAR(255) NOT NULL, 
	client_id VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_participants PRIMARY KEY (round_id, client_id), 
	CONSTRAINT fk_participants_client_id_clients FOREIGN KEY(client_id) REFERENCES clients (id), 
	CONSTRAINT fk_participants_round_id_rounds FOREIGN KEY(round_id) REFERENCES rounds (id)
);
CREATE TABLE updates (
	id VARCHAR(255) NOT NULL, 
	round_id VARCHAR(255) NOT NULL, 
	client_id VARCHAR(255) NOT NULL, 
	base_model VARCHAR(255) NOT NULL, 
	digest VARCHAR(255) NOT NULL, 
	size BIGINT NOT NULL, 
	num_samples BIGINT NOT NULL, 
	metrics JSON, 
	received_at TIMESTAMP WITHOUT TIME ZONE NOT NULL, 
	CONSTRAINT pk_updates PRIMARY KEY (id), 
	CONSTRAINT fk_updates_client_id_clients FOREIGN KEY(client_id) REFERENCES clients (id), 
	CONSTRAINT fk_updates_round_id_rounds FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT uq_updates_round_id_client_id UNIQUE (round_id, client_id)
);
CREATE INDEX ix_updates_client_id ON updates (client_id);
CREATE TABLE current_models (
	federation_id VARCHAR(255) NOT NULL, 
	key VARCHAR(255) NOT NULL, 
	model_id VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_current_models PRIMARY KEY (federation_id, key), 
	CONSTRAINT fk_current_models_federation_id_federations FOREIGN KEY(federation_id) REFERENCES federations (id), 
	CONSTRAINT fk_current_models_model_id_models FOREIGN KEY(model_id) REFERENCES models (id)
);
