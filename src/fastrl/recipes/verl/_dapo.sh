# DAPO: token means, a wider clip above, no KL, groups without contrast replaced. They are told by
# the answers alone (acc): with the format reward in it, the sum would keep the all-wrong ones.
algorithm=(
  actor_rollout_ref.actor.loss_agg_mode=token-mean
  actor_rollout_ref.actor.clip_ratio_low=0.2
  actor_rollout_ref.actor.clip_ratio_high=0.28
  actor_rollout_ref.actor.use_kl_loss=False
  algorithm.filter_groups.enable=True
  algorithm.filter_groups.metric=acc
)
