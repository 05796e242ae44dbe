# The data: 2101 prompts, 8 steps an epoch; checkpoint and validation once an epoch.
dataset=(
  data.max_response_length=2048
  trainer.total_epochs=25
  trainer.save_freq=8
  trainer.test_freq=8
)
