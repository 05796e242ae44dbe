# GSPO: one ratio a sequence, with a narrow clip, no KL.
algorithm=(
  actor_rollout_ref.actor.policy_loss.loss_mode=gspo
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean
  actor_rollout_ref.actor.clip_ratio_low=3e-4
  actor_rollout_ref.actor.clip_ratio_high=4e-4
  actor_rollout_ref.actor.use_kl_loss=False
)
