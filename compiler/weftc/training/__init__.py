"""Learning the numbers of a spec: `learn` parameters, tied through the compiled matrices, trained in torch.

layers      a spec whose numbers differ from layer to layer -> one layer with all steps; numbers -> a spec with them
tensors     parameters -> the tensors of a program, each entry by its formula
trainable   a spec -> an `nn.Module` whose parameters are the numbers to learn
losses      how far outputs are from what is wanted
training    data, a loss, steps of Adam -> the numbers, and the spec with them
"""
