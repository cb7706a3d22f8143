"""Security: users and rights, authentication, SCRAM credentials and quotas."""
