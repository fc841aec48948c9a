"""Numbers that solve the classic control environments with `OpenAIES`: where to start with another one."""

POP = 64
SIGMA = 0.2
CHUNK = 64  # candidates a call of the evaluator
LR = 0.1  # of Adam
HIDDEN = (32,)  # sizes of the tanh layers of a policy
EPISODES = 100  # fresh episodes that say how good a policy is
